"""How a run ends that cannot go on: one clear line and an exit code, no traceback."""

import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class RunError(RuntimeError):
    """The run cannot go on. The message says why, and everything saved before is whole."""


def exit_code(error: BaseException) -> int:
    """Print the one line that `error` deserves and return the exit code of the program.

    The code is 1 for a run that could not go on, 2 for a user's mistake and 130 for Ctrl-C. An
    error that was not raised by a check of this project is a bug, and is raised again.
    """
    if isinstance(error, KeyboardInterrupt):  # before there is anything to save; see ppo.run.stop
        print("main.py: interrupted", file=sys.stderr)
        return 130
    if not _raised_by_a_check(error):
        raise error
    print(f"main.py: error: {_one_line(error)}", file=sys.stderr)
    return 1 if isinstance(error, RunError) else 2


def _raised_by_a_check(error: BaseException) -> bool:
    """Whether a `raise` statement of this project made the error, and not a library or a bug."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(frame.filename).resolve()
    inside = path.is_relative_to(ROOT) and "site-packages" not in path.parts
    return inside and frame.line.startswith("raise ")


def _one_line(error: BaseException) -> str:
    """The first line, and the innermost place of an environment's traceback if there is one."""
    first, *rest = str(error).splitlines()
    places = [line.strip() for line in rest if line.startswith('  File "')]
    return f"{first} ({places[-1]})" if places else first
