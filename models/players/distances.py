"""The distances in observations, as passages that become one token each."""

from collections.abc import Sequence


def distances(ways: Sequence[str], farthest: int) -> list[str]:
    """Return " 1 step left", " and 2 steps up" ..., up to `farthest` steps and for all ways."""
    return [
        f"{joint} {n} {steps} {way}"
        for joint in ("", " and")
        for n in range(1, farthest + 1)
        for steps in ("step", "steps")
        for way in ways
    ]
