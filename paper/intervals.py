"""Interquartile means and their bootstrap intervals over seeds (Agarwal et al. 2021, "rliable")."""

import math

import numpy as np

SAMPLES = 2000
LEVEL = 95.0
TAILS = [(100 - LEVEL) / 2, (100 + LEVEL) / 2]
NORMAL = 1.959964  # half the width of the 95 % interval, in standard errors
ABOUT_INTERVALS = """
An interval over seeds is the 95 % bootstrap interval of the interquartile mean (of fewer than four
seeds the mean). Over three or five seeds it is too narrow rather than too wide, and two that
overlap decide nothing."""


def iqm(values) -> np.ndarray:
    """The mean of the middle half: a quarter of the values, rounded down, is cut off at each end.

    values: (..., K); of fewer than four it is the plain mean
    """
    ordered = np.sort(np.asarray(values, dtype=float), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(-1)


def interval(values: list[list[float]]) -> tuple[float, float, float]:
    """The IQM of all values together, and the percentile interval of the stratified bootstrap: each
    sample draws the seeds of every task anew. values: for each task one number for each seed"""
    rng = np.random.default_rng(0)  # the same files give the same page
    low, high = np.percentile(_drawn(rng, values), TAILS)
    return float(iqm(np.concatenate(values))), float(low), float(high)


def difference(
    more: list[list[float]], less: list[list[float]], error: float = 0.0
) -> tuple[float, float, float]:
    """The IQM of `more` minus that of `less`, and its interval: both sides draw their seeds anew,
    each task by itself. A task with a single number contributes no doubt, but for `error`.

    error: the standard error of `less` over episodes, where it is evaluations of initial models
    """
    rng = np.random.default_rng(0)
    drawn = _drawn(rng, more) - _drawn(rng, less)
    low, high = np.percentile(drawn + error * rng.standard_normal(SAMPLES), TAILS)
    mean = iqm(np.concatenate(more)) - iqm(np.concatenate(less))
    return float(mean), float(low), float(high)


def _drawn(rng, values: list[list[float]]) -> np.ndarray:
    """The IQMs of SAMPLES bootstrap samples."""
    drawn = [rng.choice(np.asarray(task, dtype=float), (SAMPLES, len(task))) for task in values]
    return iqm(np.concatenate(drawn, axis=-1))


def share_difference(more: list[tuple], less: list[tuple]) -> tuple[float, float, float]:
    """The mean of the shares `more` minus that of `less`, with the normal 95 % interval over
    episodes, which are taken as independent. more, less: (share, number of episodes)"""
    mean = lambda side: sum(share for share, _ in side) / len(side)
    error = lambda side: mean_error([share_error(*panel) for panel in side])
    middle, half = mean(more) - mean(less), NORMAL * math.hypot(error(more), error(less))
    return middle, middle - half, middle + half


def share_error(share: float, n: int) -> float:
    """The standard error of a share of n episodes."""
    # One success and one failure are added: a share of 0 or 1 has its doubt, too.
    p = (share * n + 1) / (n + 2)
    return math.sqrt(p * (1 - p) / (n + 2))


def mean_error(errors: list[float]) -> float:
    """The standard error of a mean of independent numbers, from those of the numbers."""
    return math.hypot(*errors) / len(errors)


def signed(mean: float, low: float, high: float) -> str:
    """A difference with its interval."""
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def told(values: list[list[float]], form: str = ".3f") -> str:
    """An interquartile mean with its interval, which needs two seeds."""
    if not any(values):
        return "-"
    mean, low, high = interval(values)
    return f"{mean:{form}}" + f" [{low:{form}}, {high:{form}}]" * (max(map(len, values)) > 1)
