"""Leaves out the middle of a text that is too long for a prompt."""

MARK = "\n[... {} characters are left out here ...]\n"


def shortened(text: str, n: int) -> str:
    """Return the first and the last n / 2 characters, around a mark."""
    tail = n // 2
    return text[: n - tail] + MARK.format(len(text) - n) + text[len(text) - tail :]
