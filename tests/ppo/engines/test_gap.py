"""The warning of a gap between the engine's log-probs and the trainer's."""

import math

import pytest

from ppo.engines.gap import GapWarning, explained_gap


@pytest.mark.parametrize(
    ("dtype", "temperature", "bound"),
    # log-probs are of logits / temperature, and so is their error; 0 is greedy, at 1
    [("float32", 1.0, 1e-3), ("float32", 0.5, 2e-3), ("float32", 2.0, 1e-3), ("bfloat16", 0, 0.1)],
)
def test_what_rounding_explains(dtype, temperature, bound):
    assert explained_gap(dtype, temperature) == pytest.approx(bound)


def test_rounding_explains_more_where_no_token_is_likely():
    assert explained_gap("bfloat16", 1.0, random_ids=True) == 0.5
    assert explained_gap("bfloat16", 0.5, random_ids=True) == 1.0
    assert explained_gap("float32", 1.0, random_ids=True) == 1e-3


def test_a_gap_is_told_once():
    warning = GapWarning("float32", 1.0)
    assert warning(1e-5) is None and warning(None) is None  # with --tis-cap there is none
    assert "differ by 0.75 per token" in warning(0.75)
    assert warning(0.8) is None


def test_a_gap_that_is_not_finite_is_told():
    assert "not finite" in GapWarning("bfloat16", 1.0)(math.nan)
