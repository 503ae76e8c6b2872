"""What --clip means: how far a probability ratio may gain, and of what it is the ratio."""

from argparse import ArgumentTypeError
from typing import NamedTuple

FORMS = "X or LOW:HIGH above 0, or turn: or episode: and these"
SHARED = ("turn", "episode")


class Clip(NamedTuple):
    """The surrogate is clipped to ratios from 1 - low to 1 + high. of: "token", or one of SHARED,
    whose tokens share one ratio, the geometric mean of theirs"""

    low: float
    high: float
    of: str


def clip_of(value: float | str) -> Clip:
    """Read a value of --clip. ValueError: it has none of the forms"""
    first, *rest = str(value).split(":")
    of, rest = (first, rest) if first in SHARED else ("token", [first, *rest])
    bounds = [float(bound) for bound in rest]
    if len(bounds) not in (1, 2) or not all(bound > 0 for bound in bounds):  # nan is not above 0
        raise ValueError(value)
    return Clip(bounds[0], bounds[-1], of)


def clip_range(text: str) -> float | str:
    """The type of --clip: the paper's number, or one of the other forms."""
    try:
        low, high, of = clip_of(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not of the form {FORMS} (inf: off)") from error
    return low if low == high and of == "token" else text
