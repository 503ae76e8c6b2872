"""How the programs of this project are called, and how they speak: help, and mistakes in one line.

Any room may import this file; it imports nothing but the standard library.
"""

import argparse
import os
import sys
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path

MAIN = Path(__file__).resolve().parents[1] / "main.py"
UNKNOWN = "unrecognized arguments: "  # how argparse begins the message
LOADING = "loading libraries ..."
OF_MAIN = ("turnwise train", "turnwise evaluate")


def command(module: str) -> str:
    """Return how the running program was started: as `module`, or by the command `turnwise`."""
    return sys.argv[0] if sys.argv[0].startswith("turnwise ") else module


def is_main() -> bool:
    """Return whether main.py is what runs, and not a test or another program that imports it."""
    return Path(sys.argv[0]).resolve() == MAIN or sys.argv[0] in OF_MAIN


@cache
def life_sign(line: str) -> None:
    """Print, once, what takes its time now. Only main.py as a program does, and only rank 0."""
    if is_main() and os.environ.get("RANK", "0") == "0":
        with suppress(BrokenPipeError):  # a run that nobody reads is ended where it can be saved
            print(line, flush=True)


class Help(argparse.HelpFormatter):
    """Shows the default of each flag that has one, and N for integers, X for other numbers."""

    def _get_help_string(self, action: argparse.Action) -> str:
        unset = any(action.default is x for x in (None, False, argparse.SUPPRESS))
        said = action.help or ""
        told = unset or not action.option_strings or "default" in said or action.default in ({}, [])
        return said if told else f"{said} (default: %(default)s)"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return {int: "N", float: "X", Path: "PATH"}.get(action.type, "NAME")


class Parser(argparse.ArgumentParser):
    """A parser whose help is a `Help`, and which tells a mistake in one line with exit code 2."""

    def __init__(self, prog: str, **options):
        super().__init__(prog=command(prog), formatter_class=Help, **options)

    def error(self, message: str):
        sys.stderr.write(f"{self.prog}: error: {self.with_hint(message)}\n")
        raise SystemExit(2)

    def with_hint(self, message: str) -> str:
        """Add the flag that was probably meant to the error about one that does not exist."""
        if not message.startswith(UNKNOWN):
            return message
        word = message.removeprefix(UNKNOWN).split()[0]
        typed = word.partition("=")[0].replace("_", "-").lower()
        known = [flag for flag in self._option_string_actions if flag.startswith("--")]
        near = get_close_matches(typed, known, 1) if typed.startswith("--") else []
        return f"{message}; did you mean {near[0]}?" if near else message
