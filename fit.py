"""Estimates whether a run fits into memory: `turnwise fit`, or

    python -m fit FLAGS       the flags of main.py

It prints the bytes per rank and roughly how long an update takes. The exit code is 2 if the run
does not fit. The estimate itself is in run/estimate/.
"""

import sys

from arguments import get_args
from common.cli import command, run_printing
from common.plugins import UserError

PROGRAM = "fit"


def main(argv: list[str] | None = None) -> int:
    """Print the estimate for a command line, and return the exit code."""
    args = get_args(argv, PROGRAM)
    from run.estimate.advice import print_estimate  # imports torch: mistakes are reported before

    try:
        return run_printing(lambda: print_estimate(args), PROGRAM)
    except UserError as error:
        print(f"{command(PROGRAM)}: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
