"""Student's t (Student 1908): the interval of a mean whose spread is estimated from few numbers."""

import math
from collections.abc import Sequence

import numpy as np

SHARE = 0.95  # of the intervals
MANY = 1000.0  # degrees of freedom from which the quantile is the normal one up to .003


def t_quantile(df: float) -> float:
    """Return the 97.5 % quantile of Student's t with df >= 1 degrees of freedom.

    With t = sqrt(df) tan(a) its density is proportional to cos(a)^(df - 1), so the quantile is
    where the integral from 0 has reached SHARE of the whole.
    """
    df = min(df, MANY)
    angles = math.pi / 2 * np.linspace(0, 1, 1001) ** 2  # close together where the density is high
    density = np.cos(angles) ** (df - 1)
    trapezoids = np.diff(angles) * (density[1:] + density[:-1])
    integral = np.concatenate([[0.0], np.cumsum(trapezoids)])
    return math.sqrt(df) * math.tan(np.interp(SHARE, integral / integral[-1], angles))


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return (mean, low, high) of at least two numbers, with the 95 % t interval."""
    mean, n = float(np.mean(values)), len(values)
    half = t_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return mean, mean - half, mean + half
