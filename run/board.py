"""TensorBoard's event file. A thread writes it; its errors must not print a traceback at exit."""

import atexit
import threading
from contextlib import suppress
from math import isfinite
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

OUTCOMES = ("eval/success", "eval/return", "rollout/success")  # columns of the page HPARAMS


def open_board(run: Path, purge: int | None) -> SummaryWriter:
    """Return the writer of a run's events; it is closed at the end of the process.

    purge: TensorBoard drops earlier processes' events from this step on; None: it drops nothing
    """
    board = SummaryWriter(run, purge_step=purge)
    atexit.register(close_board, board)
    threading.excepthook = without_boards(threading.excepthook)
    return board


def show_settings(board: SummaryWriter, settings: dict) -> None:
    """Show the arguments of a run on TensorBoard's pages HPARAMS and TEXT."""
    plain = {name: _plain(value) for name, value in sorted(settings.items())}
    # `add_hparams` would write to a second folder, which TensorBoard shows as a second run.
    for summary in hparams(plain, dict.fromkeys(OUTCOMES, 0.0)):
        board.file_writer.add_summary(summary)
    rows = "".join(f"| {name} | {value} |\n" for name, value in plain.items())
    board.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)


def _plain(value) -> bool | int | float | str:
    is_number = isinstance(value, bool | int) or isinstance(value, float) and isfinite(value)
    return value if is_number else str(value)


def close_board(board: SummaryWriter) -> None:
    with suppress(OSError):  # the run's own files are complete; these events are a copy
        board.close()


def without_boards(hook):
    """Return an excepthook that ignores OSErrors of TensorBoard's threads, which `add_scalar`
    raises again, and passes all other errors to `hook`."""

    def report(args) -> None:
        from_board = type(args.thread).__module__.startswith("tensorboard.")
        if not (from_board and isinstance(args.exc_value, OSError)):
            hook(args)

    return report
