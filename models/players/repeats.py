"""What a player that remembers says of turns in which it saw the same."""

from collections.abc import Sequence
from itertools import takewhile


def unchanged(text: str, seen: Sequence[str]) -> int:
    """Return how many observations in a row, up to the last one seen, are equal to this one."""
    return len(list(takewhile(lambda old: old == text, reversed(seen))))


def again(n: int) -> str:
    """Return what it adds to a thought if the last n observations were the same as this one.

    A clone learns from it to count, which the actions alone, where most n mean nothing, teach late.
    """
    return f" I saw this {'once' if n == 1 else f'{n} times'} before." if n else ""
