"""Student's t: the printed quantiles, intervals by hand, and their coverage in simulated runs."""

import numpy as np
import pytest

from common.student import mean_interval, t_quantile


@pytest.mark.parametrize(
    ("df", "printed"),
    # the column .975 of any table of the t distribution
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (8, 2.306), (30, 2.042), (120, 1.980)],
)
def test_the_quantiles_are_those_of_the_tables(df, printed):
    assert t_quantile(df) == pytest.approx(printed, abs=6e-4)


def test_many_degrees_of_freedom_are_the_normal_distribution():
    assert t_quantile(1e9) == t_quantile(float("inf")) == pytest.approx(1.960, abs=3e-3)
    # Welch's degrees of freedom are no whole numbers
    assert t_quantile(2) > t_quantile(2.5) > t_quantile(3)


def test_an_interval_by_hand():
    # mean 2, variance ((-1)^2 + 0 + 1^2) / 2 = 1, standard error 1 / 3^.5; 4.303 x .57735 = 2.484
    assert mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, -0.484, 4.484), abs=1e-3)
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_covers_the_mean_in_95_percent(seeds):
    rng = np.random.default_rng(seeds)
    found = [mean_interval(rng.normal(0.7, 0.1, seeds)) for _ in range(2000)]
    assert 0.93 < np.mean([low <= 0.7 <= high for _, low, high in found]) < 0.97
