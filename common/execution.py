"""What --env-workers means: where environments run, and how long a turn may take."""

import re
from argparse import ArgumentTypeError
from typing import NamedTuple

FORMS = "K processes, threads:K, or either with ,timeout=SECONDS"
TIMEOUT = 300.0  # seconds


class Execution(NamedTuple):
    """processes, threads: how many of them run the environments; at most one of them is not 0, and
    with none the trainer runs them itself. timeout: seconds that a turn may take in a process, or
    with an agent; a thread cannot be stopped"""

    processes: int
    threads: int
    timeout: float


def execution(text: int | str) -> Execution:
    """Read a value of --env-workers. ValueError: it has none of the forms"""
    form = re.fullmatch(r"(threads:)?(\d{1,9})(?:,timeout=(.+))?", str(text))
    timeout = float(form[3] or TIMEOUT) if form else 0.0
    if not timeout > 0:  # nan is not above 0
        raise ValueError(text)
    count = int(form[2])
    return Execution(0, count, timeout) if form[1] else Execution(count, 0, timeout)


def env_workers(text: str) -> int | str:
    """The type of --env-workers: a number of processes, or one of the other forms."""
    try:
        execution(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not of the form {FORMS}") from error
    return int(text) if text.isdecimal() else text
