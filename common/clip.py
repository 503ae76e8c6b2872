"""What --clip means: how far a probability ratio may gain, and of what it is the ratio."""

from argparse import ArgumentTypeError
from typing import NamedTuple

FORMS = "X, LOW:HIGH, turn:X or turn:LOW:HIGH, above 0"
TURN = "turn:"


class Clip(NamedTuple):
    """The surrogate is clipped to ratios from 1 - low to 1 + high. per_turn: the tokens of a turn
    share one ratio, the geometric mean of theirs"""

    low: float
    high: float
    per_turn: bool


def clip_of(value: float | str) -> Clip:
    """Read a value of --clip. ValueError: it has none of the forms"""
    bounds = [float(bound) for bound in str(value).removeprefix(TURN).split(":")]
    if len(bounds) > 2 or not all(bound > 0 for bound in bounds):  # nan is not above 0
        raise ValueError(value)
    return Clip(bounds[0], bounds[-1], str(value).startswith(TURN))


def clip_range(text: str) -> float | str:
    """The type of --clip: the paper's number, or one of the other forms."""
    try:
        low, high, per_turn = clip_of(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not of the form {FORMS} (inf: off)") from error
    return low if low == high and not per_turn else text
