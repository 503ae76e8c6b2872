"""Intervals over seeds: by hand, and how often they cover the truth in simulated runs."""

import math
from functools import partial

import numpy as np
import pytest

from paper.intervals import FEW_SEEDS, difference, interval, iqm, paired, seeds_text


def test_interquartile_means_by_hand():
    assert iqm([1.0, 5.0, 3.0]) == 3.0  # the mean of three
    assert iqm([9.0, 0.0, 2.0, 4.0]) == 3.0  # of four the middle two
    assert iqm([0.0, 1.0, 2.0, 6.0, 100.0]) == 3.0  # of five the middle three
    assert iqm([[4.0, 0.0, 2.0, 9.0], [1.0, 1.0, 1.0, 1.0]]).tolist() == [3.0, 1.0]


def test_few_seeds_have_a_t_interval():
    assert interval([[0.5, 0.5, 0.5]]) == (0.5, 0.5, 0.5)
    # mean .5, variance .01, standard error .1 / 3^.5 = .05774; with 2 degrees of freedom 4.303
    assert interval([[0.4, 0.5, 0.6]]) == pytest.approx((0.5, 0.2516, 0.7484), abs=1e-4)
    # five are not trimmed: the mean of 0, 0, 0, 0, 1 is .2
    assert interval([[0.0, 0.0, 0.0, 0.0, 1.0]])[0] == pytest.approx(0.2)
    assert seeds_text([[0.25]]) == "0.250" and seeds_text([[], []]) == "-"
    assert seeds_text([[0.4, 0.5, 0.6]]) == "0.500 [0.252, 0.748]"
    assert seeds_text([[0.4, 0.5, 0.6], [0.9]]) == "0.700"  # how the second task varies is unknown


def test_each_task_counts_as_much_as_any_other():
    # five seeds of one task at .9 and three of another at .1: not (5 x .9 + 3 x .1) / 8 = .6, and
    # the second task is not what an interquartile mean of all eight would drop
    assert interval([[0.9] * 5, [0.1] * 3]) == pytest.approx((0.5, 0.5, 0.5))
    # Variances .01 / 3 each; the mean of two tasks has (.00333 + .00333) / 4, a standard error of
    # .04082. Its degrees of freedom are (v + v)^2 / (v^2 / 2 + v^2 / 2) = 4: 2.776 x .04082 = .1133
    mean, low, high = interval([[0.8, 0.9, 1.0], [0.0, 0.1, 0.2]])
    assert (mean, low, high) == pytest.approx((0.5, 0.3867, 0.6133), abs=1e-4)


def test_differences_by_welch():
    assert difference([[0.9, 0.9, 0.9]], [[0.4]]) == pytest.approx((0.5, 0.5, 0.5))
    # variances v = .01 / 3 and 4v: (v + 4v)^2 / (v^2 / 2 + 16 v^2 / 2) = 25 / 8.5 = 2.94 degrees of
    # freedom, whose quantile is a little above 3.182, that of 3
    mean, low, high = difference([[0.4, 0.5, 0.6]], [[0.0, 0.2, 0.4]])
    assert mean == pytest.approx(0.3)
    assert 3.182 < (high - low) / 2 / math.sqrt(0.05 / 3) < 3.25
    # one evaluation with a known error of .1 and seeds without spread: 1.96 x .1
    _, low, high = difference([[0.9, 0.9]], [[0.4]], error=0.1)
    assert (low, high) == pytest.approx((0.304, 0.696), abs=1e-3)


def test_pairs_lose_what_both_numbers_of_a_run_share():
    # the differences are .1, .1 and .1 in each run, while the runs lie far apart
    assert paired([[0.2, 0.5, 0.9]], [[0.1, 0.4, 0.8]]) == pytest.approx((0.1, 0.1, 0.1))
    _, low, _ = difference([[0.2, 0.5, 0.9]], [[0.1, 0.4, 0.8]])
    assert low < -0.5


def test_many_seeds_have_a_bootstrap_interval_of_the_interquartile_mean():
    seeds = [0.0] * 3 + [0.5] * 6 + [1.0] * 3
    assert len(seeds) >= FEW_SEEDS
    mean, low, high = interval([seeds])
    assert mean == 0.5 and 0.1 < low < 0.5 < high < 0.9
    assert interval([seeds]) == (mean, low, high)  # no chance in pages
    # each task is resampled by itself, so equal seeds in each leave no doubt
    assert interval([[0.0] * 10, [1.0] * 10]) == (0.5, 0.5, 0.5)
    assert difference([[0.7] * 10], [[0.4] * 10]) == pytest.approx((0.3, 0.3, 0.3))


def coverage(find, truth: float, times: int = 1500) -> float:
    """How often the interval that `find` makes of new random runs has the truth in it."""
    rng = np.random.default_rng(1)
    found = [find(rng) for _ in range(times)]
    return sum(low <= truth <= high for _, low, high in found) / times


def of_two_methods(seeds, wide, rng):
    return difference([rng.normal(0.8, 0.1, seeds)], [rng.normal(0.6, 0.1 * wide, seeds)])


def of_four_tasks(seeds, rng):
    return interval([rng.normal(task / 10, 0.1, seeds) for task in (3, 5, 7, 9)])


def of_the_same_runs(seeds, rng):
    run = rng.normal(0, 1, seeds)  # far more than what is compared
    return paired([run + rng.normal(0.8, 0.1, seeds)], [run + rng.normal(0.6, 0.1, seeds)])


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_cover_the_truth_in_95_percent(seeds):
    assert 0.93 < coverage(partial(of_the_same_runs, seeds), 0.2) < 0.97
    # Welch's interval needs no equal variances; at two seeds it is wider than it has to be.
    most = 0.985 if seeds == 2 else 0.97
    assert 0.93 < coverage(partial(of_two_methods, seeds, 1), 0.2) < most
    assert 0.93 < coverage(partial(of_two_methods, seeds, 3), 0.2) < 0.97
    assert 0.93 < coverage(partial(of_four_tasks, seeds), 0.6) < most
