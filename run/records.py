"""metrics.jsonl, eval.jsonl and warmup.jsonl, with the same figures in TensorBoard and wandb.

Metrics are one flat dict of floats named "group/name". A figure that does not exist (too few
episodes have ended, say) is None: null in the JSON, and absent from TensorBoard.
"""

import json
import math
from contextlib import suppress
from pathlib import Path

from common.masked import masked
from common.run_file import read_text
from run.board import open_board, show_settings
from run.files import append_records
from run.track import make_tracker

# File -> which of its metrics TensorBoard shows: those whose names begin so.
BOARD = {"metrics.jsonl": "", "warmup.jsonl": "warmup/", "eval.jsonl": "eval/"}


class Records:
    """The figures of a run. Only rank 0 has them.

    made: updates that a resumed run has made before
    """

    def __init__(self, args, directory: Path, made: int):
        self.directory = directory
        again = args.resume and not args.eval_only  # these updates are made a second time
        self.board = open_board(directory, made if again else None)
        if again:
            self._restore_step(made)
        elif not args.resume:
            show_settings(self.board, masked(vars(args)))
        self.tracker = make_tracker(args, directory)

    def add(self, file: str, update: int, metrics: dict) -> None:
        """Append a line to one of the files of BOARD, and show it there."""
        finite = {k: v if v is not None and math.isfinite(v) else None for k, v in metrics.items()}
        append_records(self.directory / file, update, [finite])
        shown = self._show(file, update, finite)
        if self.tracker:
            self.tracker.log(update, shown)

    def _show(self, file: str, update: int, metrics: dict) -> dict[str, float]:
        """Add the figures that exist to TensorBoard, and return them."""
        prefix = BOARD[file]
        shown = {k: v for k, v in metrics.items() if v is not None and k.startswith(prefix)}
        for name, value in shown.items():
            self.board.add_scalar(name, value, update)
        return shown

    def _restore_step(self, made: int) -> None:
        """Show the figures that the logs have of step `made`. TensorBoard had to forget this step,
        for the evaluation after `made` updates may be played again."""
        for path in (self.directory / file for file in BOARD):
            for line in read_text(path).splitlines() if path.exists() else ():
                with suppress(ValueError):  # a line that was filled in is empty
                    record = json.loads(line)
                    if record.pop("update") == made:
                        self._show(path.name, made, record)
