"""Command lines of the programs that read runs: a user's mistake prints one line, exit code 2."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from common.cli import Parser, run_printing
from common.plugins import UserError


class Program(Parser):
    """A parser that also runs the program, so that all errors end it in the same way."""

    def add_runs(self) -> None:
        self.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="run directory")

    def error(self, message: str):
        raise UserError(self.with_hint(message))

    def run(self, work: Callable[[argparse.Namespace], int | None], argv: list[str] | None) -> int:
        """Parse the arguments and call `work` with them. Returns its exit code, or 0 for None.

        A ValueError or OSError prints one line on stderr and returns 2, Ctrl-C returns 130. A
        closed pipe (`| head`) ends the program silently.
        """
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has all characters
        before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            return run_printing(lambda: work(self.parse_args(argv)), self.prog)
        except (ValueError, OSError) as error:
            print(f"{self.prog}: error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print(f"{self.prog}: interrupted", file=sys.stderr)
            return 130
        finally:
            signal.signal(signal.SIGPIPE, before)
