"""How the program ends after an error: one clear line and an exit code, no traceback."""

import os
import signal
import sys

from common.cli import command, discard_output, lost_output
from common.errors import OtherRankFailed, RunError
from common.plugins import UserError, location_of
from run.files import NO_ROOM
from run.process import output_is_lost


def exit_code(error: BaseException) -> int:
    """Print the line that `error` deserves, and return the exit code of the program.

    The code is 1 for a run that broke off, 2 for a mistake of the user's, 130 for Ctrl-C and 141
    for an output whose reader has left. An error that neither a check of this project nor a user's
    own code raised is a bug, and is raised again.
    """
    if isinstance(error, BrokenPipeError) and output_is_lost():
        return 128 + signal.SIGPIPE
    if isinstance(error, KeyboardInterrupt):  # before there is anything to save; see run.stop
        print(f"{command('main.py')}: interrupted", file=sys.stderr)
        return 130
    if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
        discard_output()
        print(f"{command('main.py')}: error: {lost_output(error)}", file=sys.stderr)
        return 1
    if not is_check(error):
        raise error
    if not isinstance(error, OtherRankFailed):
        many = int(os.environ.get("WORLD_SIZE", 1)) > 1 and "RANK" in os.environ
        rank = f"rank {os.environ['RANK']}: " if many else ""
        # Written at once: torchrun's ranks share this stream, and print writes the end by itself.
        print(f"{command('main.py')}: error: {rank}{one_line(error)}\n", end="", file=sys.stderr)
    return 1 if isinstance(error, RunError) else 2


def is_check(error: BaseException) -> bool:
    """Return whether one line tells the error: a check of ours or a user's own code raised it."""
    return isinstance(error, UserError | RunError) or location_of(error) != ""


def one_line(error: BaseException) -> str:
    """Return the first line of a check, or what a user's own code raised and where."""
    if isinstance(error, UserError | RunError):
        return (str(error).splitlines() or [type(error).__name__])[0]
    return f"{location_of(error)}{type(error).__name__}: {' '.join(str(error).split())[:300]}"
