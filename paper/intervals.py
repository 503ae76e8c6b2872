"""Means over seeds and episodes, and their 95 % intervals.

Below FEW_SEEDS seeds a number is the mean, with an interval by Student's t. From there on it is the
interquartile mean with the interval of the stratified bootstrap (Agarwal et al. 2021, "rliable"),
which would be far too narrow for few seeds: it covers 74 % with three of them. Over several tasks
it is the mean of the tasks' numbers, so that each task counts alike.
"""

import math

import numpy as np

from common.student import t_quantile

FEW_SEEDS = 10
SAMPLES = 2000
TAILS = [2.5, 97.5]
NORMAL = 1.959964  # half-width of the 95 % interval, in standard errors
ABOUT_INTERVALS = f"""
"Over seeds" a number is a mean with its 95 % t interval. (From {FEW_SEEDS} seeds on it would be the
interquartile mean with a bootstrap interval.) The interval of a share may pass 0 or 1. Overlapping
intervals decide nothing."""


def iqm(values) -> np.ndarray:
    """Return the interquartile mean: a quarter of the values, rounded down, is dropped at each end.

    values: (..., K); the plain mean for K < 4
    """
    ordered = np.sort(np.asarray(values, dtype=float), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(-1)


def interval(tasks: list[list[float]]) -> tuple[float, float, float]:
    """Return (mean, low, high) over tasks. tasks: per task, one number per seed"""
    return difference(tasks, [])


def difference(
    more: list[list[float]], less: list[list[float]], error: float = 0.0
) -> tuple[float, float, float]:
    """Return the mean over the tasks of `more` minus that of `less`, as (mean, low, high).

    more, less: per task, one number per seed; a single number adds no variance of its own
    error: standard error of `less` over episodes, if it is an evaluation of the initial model
    """
    parts = [(1 / len(more), task) for task in more] + [(-1 / len(less), task) for task in less]
    if any(1 < len(task) < FEW_SEEDS for _, task in parts):
        return _welch(parts, error)
    rng = np.random.default_rng(0)  # fixed, so that the same files give the same page
    drawn = error * rng.standard_normal(SAMPLES)
    for weight, task in parts:  # each task resamples its own seeds
        drawn = drawn + weight * iqm(rng.choice(np.asarray(task, float), (SAMPLES, len(task))))
    low, high = np.percentile(drawn, TAILS)
    return float(sum(weight * iqm(task) for weight, task in parts)), float(low), float(high)


def _welch(parts: list[tuple[float, list[float]]], error: float) -> tuple[float, float, float]:
    """Return the weighted sum of means, (mean, low, high), by Welch's t (Welch 1947).

    The degrees of freedom of a sum of estimated variances are (sum v)^2 / sum(v^2 / (n - 1)), by
    Welch and Satterthwaite. `error` is taken as known: it has infinitely many.
    """
    mean = sum(weight * np.mean(task) for weight, task in parts)
    several = [(weight, task) for weight, task in parts if len(task) > 1]
    variances = [weight**2 * np.var(task, ddof=1) / len(task) for weight, task in several]
    variance = sum(variances) + error**2
    doubt = sum(v**2 / (len(task) - 1) for v, (_, task) in zip(variances, several, strict=True))
    half = t_quantile(variance**2 / doubt if doubt else math.inf) * math.sqrt(variance)
    return float(mean), float(mean - half), float(mean + half)


def paired(more: list[list[float]], less: list[list[float]]) -> tuple[float, float, float]:
    """Return what `difference` does, from the differences of pairs: both sides have the same runs,
    per task and in the same order. What a run adds to both of its numbers then cancels."""
    pairs = [zip(ours, theirs, strict=True) for ours, theirs in zip(more, less, strict=True)]
    return interval([[a - b for a, b in task] for task in pairs])


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


def seeds_text(tasks: list[list[float]], form: str = ".3f") -> str:
    """Return the text of a mean over seeds, with its interval if each task has two or more."""
    if not any(tasks):
        return "-"
    mean, low, high = interval(tasks)
    return f"{mean:{form}}" + f" [{low:{form}}, {high:{form}}]" * (min(map(len, tasks)) > 1)
