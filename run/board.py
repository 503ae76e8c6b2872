"""TensorBoard's event file, written by a thread whose errors must not add a traceback at exit."""

import atexit
import threading
from contextlib import suppress
from math import isfinite
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

OUTCOMES = ("eval/success", "eval/return", "rollout/success")  # columns of the page HPARAMS


def open_board(run: Path, purge: int | None) -> SummaryWriter:
    """Return the writer of a run's events; it is closed with the process.

    purge: the step from which on TensorBoard forgets what earlier processes wrote; None: it keeps
        everything
    """
    board = SummaryWriter(run, purge_step=purge)
    atexit.register(close_board, board)
    threading.excepthook = without_boards(threading.excepthook)
    return board


def show_settings(board: SummaryWriter, settings: dict) -> None:
    """Show the arguments of a run on TensorBoard's pages HPARAMS and TEXT."""
    plain = {name: _plain(value) for name, value in sorted(settings.items())}
    # `add_hparams` would open a second folder of events, which would look like a second run
    for summary in hparams(plain, dict.fromkeys(OUTCOMES, 0.0)):
        board.file_writer.add_summary(summary)
    rows = "".join(f"| {name} | {value} |\n" for name, value in plain.items())
    board.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)


def _plain(value) -> bool | int | float | str:
    is_number = isinstance(value, bool | int) or isinstance(value, float) and isfinite(value)
    return value if is_number else str(value)


def close_board(board: SummaryWriter) -> None:
    with suppress(OSError):  # the run has ended, and its own files are what counts
        board.close()


def without_boards(hook):
    """`hook` for the errors of all threads but this one, whose error `add_scalar` raises again."""

    def report(args) -> None:
        ours = type(args.thread).__module__.startswith("tensorboard.")
        if not (ours and isinstance(args.exc_value, OSError)):
            hook(args)

    return report
