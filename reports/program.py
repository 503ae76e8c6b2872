"""The command line of the programs that read runs: a mistake is one line and the exit code 2."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from common.cli import Parser
from common.plugins import UserError


class Program(Parser):
    """A parser that also runs the program, so that every mistake ends it in the same way."""

    def add_runs(self) -> None:
        self.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="directory of a run")

    def error(self, message: str):
        raise UserError(self.with_hint(message))

    def run(self, work: Callable[[argparse.Namespace], int | None], argv: list[str] | None) -> int:
        """Parse the arguments and call `work` with them. Returns its exit code, 0 if it has none.

        A ValueError or OSError becomes one line on stderr and the exit code 2, Ctrl-C one line and
        130. If nobody reads the output any more (`| head`), the program ends without a word.
        """
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack characters
        before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            return work(self.parse_args(argv)) or 0
        except (ValueError, OSError) as error:
            print(f"{self.prog}: error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print(f"{self.prog}: interrupted", file=sys.stderr)
            return 130
        finally:
            sys.stdout.flush()
            signal.signal(signal.SIGPIPE, before)
