"""How a run ends that cannot go on: one clear line and an exit code, no traceback."""

import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class RunError(RuntimeError):
    """The run cannot go on. The message says why, and everything saved before is whole."""


def exit_code(error: BaseException) -> int:
    """Print the line that `error` deserves; return 1 for a run that broke off, 2 for a mistake of
    the user's and 130 for Ctrl-C. An error that no check of this project raised is a bug, and is
    raised again."""
    if isinstance(error, KeyboardInterrupt):  # before there is anything to save; see ppo.run.stop
        print("main.py: interrupted", file=sys.stderr)
        return 130
    frame = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(frame.filename).resolve()
    ours = path.is_relative_to(ROOT) and "site-packages" not in path.parts
    if not (ours and frame.line.startswith("raise ")):
        raise error
    line, *rest = str(error).splitlines()
    places = [line.strip() for line in rest if line.startswith('  File "')]
    place = f" ({places[-1]})" if places else ""  # where an environment's own code failed
    print(f"main.py: error: {line}{place}", file=sys.stderr)
    return 1 if isinstance(error, RunError) else 2
