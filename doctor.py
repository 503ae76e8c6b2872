"""Checks a machine before the first run on it: `turnwise doctor`, or

    python -m doctor FLAGS                               the flags of main.py, or none
    torchrun --nproc-per-node 8 -m doctor FLAGS          also what the ranks do together

A line per check says pass, skip or FAIL, and a failure names its remedy. The exit code is 1 if a
check fails. Without a GPU the same computations run on the CPU. The checks are in run/doctor/.
"""

import sys

import run.process  # noqa: F401 (it silences torch's warnings about the machine)
from arguments import get_args
from common.cli import end_silently_on_signals, run_printing

PROGRAM = "doctor"


def main(argv: list[str] | None = None) -> int:
    """Check this machine for a command line, and return the exit code."""
    end_silently_on_signals()
    args = get_args(argv, PROGRAM, quick=True)  # torch may be what does not work
    from run.doctor.checks import check_machine

    return run_printing(lambda: check_machine(args), PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
