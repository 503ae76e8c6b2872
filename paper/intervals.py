"""Interquartile means and their bootstrap intervals over seeds (Agarwal et al. 2021, "rliable")."""

import math

import numpy as np

SAMPLES = 2000
LEVEL = 95.0
TAILS = [(100 - LEVEL) / 2, (100 + LEVEL) / 2]
NORMAL = 1.959964  # half-width of the 95 % interval, in standard errors
ABOUT_INTERVALS = """
An interval over seeds is the 95 % bootstrap interval of the interquartile mean (the plain mean for
fewer than four seeds). With three or five seeds it is more likely too narrow than too wide, and
overlapping intervals decide nothing."""


def iqm(values) -> np.ndarray:
    """Return the interquartile mean: a quarter of the values, rounded down, is dropped at each end.

    values: (..., K); the plain mean for K < 4
    """
    ordered = np.sort(np.asarray(values, dtype=float), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(-1)


def interval(values: list[list[float]]) -> tuple[float, float, float]:
    """Return (IQM, low, high), with the percentile interval of the stratified bootstrap.

    Each bootstrap sample resamples the seeds of every task. values: per task, one number per seed
    """
    rng = np.random.default_rng(0)  # fixed, so that the same files give the same page
    low, high = np.percentile(_drawn(rng, values), TAILS)
    return float(iqm(np.concatenate(values))), float(low), float(high)


def difference(
    more: list[list[float]], less: list[list[float]], error: float = 0.0
) -> tuple[float, float, float]:
    """Return the IQM of `more` minus the IQM of `less`, with its interval (mean, low, high).

    Both sides resample their seeds within each task. A task with a single number adds no variance
    of its own.

    error: standard error of `less` over episodes, if it is an evaluation of the initial model
    """
    rng = np.random.default_rng(0)
    drawn = _drawn(rng, more) - _drawn(rng, less)
    low, high = np.percentile(drawn + error * rng.standard_normal(SAMPLES), TAILS)
    mean = iqm(np.concatenate(more)) - iqm(np.concatenate(less))
    return float(mean), float(low), float(high)


def _drawn(rng, values: list[list[float]]) -> np.ndarray:
    """Return the IQMs of SAMPLES bootstrap samples."""
    drawn = [rng.choice(np.asarray(task, dtype=float), (SAMPLES, len(task))) for task in values]
    return iqm(np.concatenate(drawn, axis=-1))


def share_difference(more: list[tuple], less: list[tuple]) -> tuple[float, float, float]:
    """Return the mean share of `more` minus that of `less`, as (mean, low, high).

    The interval is the normal 95 % interval over episodes, treated as independent.
    more, less: (share, number of episodes)
    """
    more_mean, more_error = _mean_share(more)
    less_mean, less_error = _mean_share(less)
    middle, half = more_mean - less_mean, NORMAL * math.hypot(more_error, less_error)
    return middle, middle - half, middle + half


def _mean_share(panels: list[tuple]) -> tuple[float, float]:
    """Return the mean of the shares and its standard error."""
    mean = sum(share for share, _ in panels) / len(panels)
    return mean, mean_error([share_error(share, n) for share, n in panels])


def share_error(share: float, n: int) -> float:
    """Return the standard error of a share of n episodes."""
    # Add one success and one failure, so that a share of 0 or 1 has an error, too.
    p = (share * n + 1) / (n + 2)
    return math.sqrt(p * (1 - p) / (n + 2))


def mean_error(errors: list[float]) -> float:
    """Return the standard error of a mean of independent numbers from their standard errors."""
    return math.hypot(*errors) / len(errors)


def signed(mean: float, low: float, high: float) -> str:
    """Return the text of a difference with its interval."""
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def iqm_text(values: list[list[float]], form: str = ".3f") -> str:
    """Return the text of an IQM, with its interval if there are two seeds or more."""
    if not any(values):
        return "-"
    mean, low, high = interval(values)
    return f"{mean:{form}}" + f" [{low:{form}}, {high:{form}}]" * (max(map(len, values)) > 1)
