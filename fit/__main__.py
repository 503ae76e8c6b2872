"""Estimates whether a run fits into memory: `turnwise fit`, or

    python -m fit FLAGS       the flags of main.py

It prints bytes per rank and about how long an update takes. The exit code is 2 if the run does not
fit.
"""

import sys

from arguments import get_args
from common.cli import command
from common.plugins import UserError

PROGRAM = "fit"


def main(argv: list[str] | None = None) -> int:
    """Print the estimate of a command line, and return the exit code."""
    args = get_args(argv, PROGRAM)
    from run.fit.advice import dry_run  # imports torch: a mistake is answered before

    try:
        dry_run(args)
    except UserError as error:
        print(f"{command(PROGRAM)}: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
