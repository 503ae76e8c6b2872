"""TensorBoard's event file, written by a thread whose errors must not add a traceback at exit."""

import atexit
import threading
from contextlib import suppress
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter


def open_board(run: Path, purge: int | None) -> SummaryWriter:
    """Return the writer of a run's events; it is closed with the process.

    purge: the step from which on TensorBoard forgets what earlier processes wrote; None: it keeps
        everything
    """
    board = SummaryWriter(run, purge_step=purge)
    atexit.register(close_board, board)
    threading.excepthook = without_boards(threading.excepthook)
    return board


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
