"""Leaves out the middle or the end of a text that is too long."""

from collections.abc import Callable

MARK = "\n[... {} characters are left out here ...]\n"
CUT = " [cut]"


def shortened(text: str, n: int) -> str:
    """Return the first and the last n / 2 characters, around a mark."""
    tail = n // 2
    return text[: n - tail] + MARK.format(len(text) - n) + text[len(text) - tail :]


def beginning(text: str, fits: Callable[[str], bool]) -> str:
    """Return the text if it fits, or its longest beginning that does, with a mark behind it."""
    if fits(text):
        return text
    least, most = 0, len(text)
    while least < most:
        n = (least + most + 1) // 2
        least, most = (n, most) if fits(text[:n].rstrip() + CUT) else (least, n - 1)
    return text[:least].rstrip() + CUT
