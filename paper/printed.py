"""The numbers that the paper prints: shares of successes, Crafter's return and episode lengths.

Numbers that are missing here are printed neither in the paper nor on its web page.
"""

from dataclasses import dataclass
from math import hypot

LENGTHS = (1, 2, 4, 8, 16, 32)  # of the memory


@dataclass(frozen=True)
class Printed:
    """A printed number.

    error: standard error, None if the paper prints none
    page: the number on the paper's web page, if it differs
    digits: decimals that the paper prints
    """

    value: float
    error: float | None = None
    page: float | None = None
    digits: int = 2

    def __str__(self) -> str:
        error = "" if self.error is None else f" +- {self.error:.{self.digits}f}"
        page = "" if self.page is None else f" (its page: {self.page:.{self.digits}f})"
        return f"{self.value:.{self.digits}f}{error}{page}"

    def above(self, other: "Printed") -> str:
        """Return the text of the difference of two independent numbers."""
        more = f"{self.value - other.value:+.2f}"
        if self.error is None or other.error is None:
            return more
        return f"{more} +- {hypot(self.error, other.error):.2f}"


# Table 1: success without training, in per cent, with standard errors of 32 episodes
PER_CENT = {
    "babyai-goto": ("87.50 81.25 50.00 53.13 46.88 37.50", "5.85 6.90 8.84 8.82 8.82 8.56"),
    "babyai-pickup": ("40.63 28.13 25.00 18.75 15.63 28.13", "8.68 7.95 7.65 6.90 6.42 7.95"),
    "babyai-pick-up-seq-go-to": ("21.88 21.88 34.38 6.25 6.25 9.68",
                                 "7.31 7.31 8.40 4.28 4.28 5.31"),
    "babyai-open": ("9.38 9.38 15.63 6.25 3.13 3.13", "5.15 5.15 6.42 4.28 3.08 3.08"),
}  # fmt: skip
MEANS = ("31.87 28.13 25.00 17.50 14.47 15.72", "3.68 3.55 3.42 3.00 2.79 2.89")  # as printed
ZERO_SHOT_EPISODES = 32  # the errors of Table 1 fit (p (1 - p) / 32) ** .5


def _shares(percent: str, errors: str) -> dict[int, Printed]:
    pairs = zip(percent.split(), errors.split(), strict=True)
    numbers = [Printed(float(v) / 100, float(e) / 100, digits=4) for v, e in pairs]
    return dict(zip(LENGTHS, numbers, strict=True))


# Task -> memory length -> number
ZERO_SHOT = {task: _shares(percent, errors) for task, (percent, errors) in PER_CENT.items()}
ZERO_SHOT_MEAN = _shares(percent=MEANS[0], errors=MEANS[1])


def fifth_task(length: int) -> int:
    """Return the wins (of 32) of the fifth task, which Table 1 does not print.

    They are five times the printed mean minus the four printed rows.
    """
    rest = 5 * ZERO_SHOT_MEAN[length].value - sum(row[length].value for row in ZERO_SHOT.values())
    return round(rest * ZERO_SHOT_EPISODES)


# Table 3: success before and after training
TRAINED_SUCCESS = {
    "babyai-goto": (Printed(0.88, 0.06), Printed(1.00, 0.00)),
    "babyai-pickup": (Printed(0.41, 0.09), Printed(1.00, 0.00)),
    "babyai-pick-up-seq-go-to": (Printed(0.22, 0.07), Printed(0.65, 0.16)),
    "babyai-open": (Printed(0.09, 0.05), Printed(0.94, 0.07)),
    "baba-goto_win-distr_obj": (Printed(0.66, 0.08), Printed(1.00, 0.00)),
    "baba-two_room-goto_win": (Printed(0.03, 0.03), Printed(0.89, 0.17, page=1.0)),
    "baba-two_room-goto_win-distr_obj_rule": (Printed(0.22, 0.07), Printed(0.89, 0.11)),
    "baba-two_room-maybe_break_stop-goto_win": (
        Printed(0.19, 0.07), Printed(0.36, 0.07, page=0.69)
    ),
}  # fmt: skip
# Table 2: return and mean episode length in turns, before and after training
CRAFTER = (Printed(5.80), Printed(10.44))
CRAFTER_LENGTH = (Printed(172.23), Printed(196.42))
