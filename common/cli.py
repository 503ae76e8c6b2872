"""The command-line parser of this project's programs. A mistake is reported in one line.

Any folder may import this file; it imports only the standard library.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path

MAIN = Path(__file__).resolve().parents[1] / "main.py"
UNKNOWN = "unrecognized arguments: "  # how argparse begins the message
LOADING = "loading libraries ..."
OF_MAIN = ("turnwise train", "turnwise evaluate")


def command(module: str) -> str:
    """Return the program's name: "turnwise COMMAND" if that started it, else `module`."""
    return sys.argv[0] if sys.argv[0].startswith("turnwise ") else module


def is_main() -> bool:
    """Return whether main.py is the running program, not imported by a test or another program."""
    return Path(sys.argv[0]).resolve() == MAIN or sys.argv[0] in OF_MAIN


@cache
def print_status(line: str) -> None:
    """Print once what the program is doing. Only rank 0 of main.py as the running program does."""
    if is_main() and os.environ.get("RANK", "0") == "0":
        with suppress(OSError):  # `Console` handles it later, when the run can be saved
            print(line, flush=True)


def run_printing(program: Callable[[], int | None], name: str) -> int:
    """Run a program whose work is to print, and return its exit code, 0 for None.

    If the output cannot be written, one line says so and the code is 1. If its reader has left
    (`| head`), the code is 141.
    """
    try:
        try:
            return program() or 0
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:  # another file
            raise
        discard_output()
        if isinstance(error, BrokenPipeError):
            return 128 + signal.SIGPIPE
        print(f"{command(name)}: error: {lost_output(error)}", file=sys.stderr)
        return 1


def end_silently_on_signals() -> None:
    """Let `| head` and Ctrl-C end this program without a traceback."""
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def lost_output(error: OSError) -> str:
    return f"cannot write to the standard output: {error.strerror}"


def discard_output() -> None:
    """Let the standard output lead nowhere, so that what is left in its buffer raises no errors."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class Help(argparse.HelpFormatter):
    """Shows the default of each flag that has one, and N for integers, X for other numbers."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        unset = any(action.default is x for x in (None, False, argparse.SUPPRESS))
        if unset or action.default in ({}, []) or not action.option_strings or "default" in text:
            return text
        return f"{text} (default: %(default)s)"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return {int: "N", float: "X", Path: "PATH"}.get(action.type, "NAME")


class Parser(argparse.ArgumentParser):
    """A parser that formats its help with `Help` and reports a mistake in one line, exit code 2."""

    def __init__(self, prog: str, **options):
        super().__init__(prog=command(prog), formatter_class=Help, **options)

    def print_help(self, file=None) -> None:
        help = self.format_help()
        if run_printing(lambda: print(help, end="", file=file), self.prog) == 1:
            raise SystemExit(1)  # but a reader that has left has read enough

    def error(self, message: str):
        sys.stderr.write(f"{self.prog}: error: {self.with_hint(message)}\n")
        raise SystemExit(2)

    def with_hint(self, message: str) -> str:
        """Add a similar flag to the message about an unknown one."""
        if not message.startswith(UNKNOWN):
            return message
        word = message.removeprefix(UNKNOWN).split()[0]
        typed = word.partition("=")[0].replace("_", "-").lower()
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        near = get_close_matches(typed, known, 1) if typed.startswith("--") else []
        return f"{message}; did you mean {near[0]}?" if near else message
