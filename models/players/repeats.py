"""Counts repeated observations, for players that remember earlier turns."""

from collections.abc import Sequence
from itertools import takewhile


def unchanged(text: str, seen: Sequence[str]) -> int:
    """Return how many of the latest observations in `seen` are equal to this one."""
    return len(list(takewhile(lambda old: old == text, reversed(seen))))


def again(n: int) -> str:
    """Return a sentence for the thought if the last n observations were the same as this one.

    It teaches a clone to count early; the actions alone depend on few values of n.
    """
    return f" I saw this {'once' if n == 1 else f'{n} times'} before." if n else ""
