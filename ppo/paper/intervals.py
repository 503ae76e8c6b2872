"""Interquartile means and their bootstrap intervals over seeds (Agarwal et al. 2021, "rliable")."""

import numpy as np

SAMPLES = 2000
LEVEL = 95.0


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
    drawn = [rng.choice(np.asarray(task, dtype=float), (SAMPLES, len(task))) for task in values]
    tails = [(100 - LEVEL) / 2, (100 + LEVEL) / 2]
    low, high = np.percentile(iqm(np.concatenate(drawn, axis=-1)), tails)
    return float(iqm(np.concatenate(values))), float(low), float(high)
