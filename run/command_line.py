"""A command line of main.py from its words to its exit code."""

from collections.abc import Callable

import run.process as process
from run.driver import refuse_unseen_gpu
from run.estimate.advice import check_size
from run.exit import exit_code
from run.out_of_memory import START, explained


def run_command_line(argv: list[str] | None, get_args: Callable, main: Callable, args=None) -> int:
    """Run `main` with the arguments that `get_args` reads from argv, and return its exit code.

    A user's mistake becomes one line.
    args: the arguments, if they were read before
    """
    try:
        process.set_up()
        args = args or get_args(argv)
        refuse_unseen_gpu()
        process.choose_threads(args.model)
        check_size(args)
        with explained(args, START):
            return main(args)
    except (Exception, KeyboardInterrupt) as error:
        return exit_code(error)
