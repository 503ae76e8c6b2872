"""The losses and the KL estimators, with numbers derived by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from ppo.kl import HORIZON, KL_ESTIMATES, KLPenalty
from ppo.losses import explained_variance, first_token_weights, policy_loss, value_loss
from ppo.terms import make_old_logps, make_policy_loss


def test_the_policy_loss_is_clipped_only_beyond_the_range():
    # clip .2; ratios 1.5, 1.5, .5, .5 with A = 1, -1, 1, -1
    #   ratio 1.5: A = 1: max(-1.5, -1.2) = -1.2, clipped;   A = -1: max(1.5, 1.2) = 1.5
    #   ratio .5:  A = 1: max(-.5, -.8) = -.5;               A = -1: max(.5, .8) = .8, clipped
    ratios = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss, clipped = policy_loss(ratios.log(), torch.zeros(4), advantages, clip=0.2)
    assert_close(loss, torch.tensor([-1.2, 1.5, -0.5, 0.8]))
    assert clipped.tolist() == [True, False, False, True]


def test_value_loss_by_hand():
    # V = 1, old 0, return 2, clip .5: max((1 - 2)^2, (.5 - 2)^2) / 2 = 1.125; unclipped .5
    arguments = dict(
        values=torch.tensor([1.0]), old_values=torch.tensor([0.0]), returns=torch.tensor([2.0])
    )
    assert value_loss(**arguments, clip=0.5).item() == pytest.approx(1.125)
    assert value_loss(**arguments, clip=float("inf")).item() == pytest.approx(0.5)


def test_first_token_weights():
    mask = torch.tensor([[True, True, False], [False, True, True]])
    expected = torch.tensor([[3.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
    assert_close(first_token_weights(mask, 3.0), expected)


def test_a_capped_ratio_bounds_the_loss_of_a_bad_token():
    # the engine gave e^-3 to a token whose probability is 1: the ratio 20.1 is capped at 2
    logps, old = torch.zeros(2, requires_grad=True), torch.tensor([-3.0, math.log(1 / 1.5)])
    capped = make_policy_loss(0.2, tis_cap=2.0)
    loss, clipped = capped(logps, old, torch.tensor([-1.0, -1.0]), 0.2)
    assert_close(loss, torch.tensor([2.0, 1.5]))  # 20.1 without the cap; 1.5 is below it
    loss.sum().backward()
    assert logps.grad.tolist() == pytest.approx([0.0, 1.5])  # beyond the cap there is no gradient
    assert clipped.tolist() == [True, False]  # PPO's own clip bounds gains only


def test_gains_have_a_bound_of_their_own():
    # LOW .1, HIGH .3; ratios 1.5 and .5 with A = 1, -1, as above
    #   ratio 1.5: A = 1: max(-1.5, -1.3) = -1.3, clipped;   A = -1: 1.5
    #   ratio .5:  A = 1: -.5;                               A = -1: max(.5, .9) = .9, clipped
    ratios = torch.tensor([1.5, 1.5, 0.5, 0.5])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    higher = make_policy_loss("0.1:0.3", tis_cap=None)
    loss, clipped = higher(ratios.log(), torch.zeros(4), advantages, "0.1:0.3")
    assert_close(loss, torch.tensor([-1.3, 1.5, -0.5, 0.9]))
    assert clipped.tolist() == [True, False, False, True]
    assert make_policy_loss(0.1, None) is policy_loss  # the paper's own


def test_tokens_of_a_turn_share_a_ratio():
    # turns of 2 and 1 tokens: ratios 4 and 1 have the geometric mean 2; the other turn has its own
    old = torch.tensor([[0.0, 0.0], [math.log(2.0), 0.0]])
    mask = torch.tensor([[True, True], [True, False]])
    batch = SimpleNamespace(
        logps=old, masks=lambda rows: mask[rows], take=lambda values, rows: values[rows][mask[rows]]
    )
    micro = SimpleNamespace(rows=torch.tensor([0, 1]))
    logps = torch.tensor([math.log(4.0), 0.0, 0.0], requires_grad=True)
    ratio = (logps - make_old_logps("turn:0.2")(batch, micro, logps)).exp()
    assert_close(ratio, torch.tensor([2.0, 2.0, 0.5]))
    ratio.sum().backward()  # d ratio / d logp is the ratio, as a token's own ratio would have it
    assert_close(logps.grad, torch.tensor([2.0, 2.0, 0.5]))
    assert_close(make_old_logps(0.2)(batch, micro, logps), torch.tensor([0, 0, math.log(2.0)]))


def test_explained_variance():
    returns = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(torch.zeros(3), returns) == pytest.approx(0.0, abs=1e-6)
    # residuals -1, 0, 1 on returns 2, 4, 6: 1 - (2/3) / (8/3) = .75
    assert explained_variance(torch.tensor([3.0, 4.0, 5.0]), 2 * returns) == pytest.approx(0.75)
    assert explained_variance(returns, torch.ones(3)) == 0.0


def test_kl_estimators_by_hand():
    # pi = .5, pi_0 = .25: log ratio = log 2
    at = (torch.tensor(0.5).log(), torch.tensor(0.25).log())
    assert KL_ESTIMATES["k1"](*at).item() == pytest.approx(math.log(2))
    assert KL_ESTIMATES["k2"](*at).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert KL_ESTIMATES["k3"](*at).item() == pytest.approx(0.5 - 1 + math.log(2))


def test_k1_and_k3_estimate_the_same_divergence():
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    exact = (p * (p / q).log()).sum()
    for name in ("k1", "k3"):
        assert_close((p * KL_ESTIMATES[name](p.log(), q.log())).sum(), exact)


def test_the_adaptive_coefficient_follows_its_target():
    kl = KLPenalty(0.1, "k1", target=0.02)
    assert HORIZON == 10_000
    kl.update(0.022, n_turns=1000)  # 10 % above: .1 * (1 + .1 * .1)
    assert kl.coef == pytest.approx(0.101)
    kl.update(1.0, n_turns=1000)  # far above: the error is cut at .2
    assert kl.coef == pytest.approx(0.101 * 1.02)
    kl.update(0.0, n_turns=90_000)  # far below, and a batch longer than the horizon: .8, not -.8
    assert kl.coef == pytest.approx(0.101 * 1.02 * 0.8)
    fixed = KLPenalty(0.1, "k1", target=None)
    fixed.update(1.0, n_turns=100)
    assert fixed.coef == 0.1


def test_a_resumed_run_has_the_typed_coefficient_unless_it_adapts():
    saved = KLPenalty(0.1, "k1", target=None).state_dict()
    typed, adapting = KLPenalty(0.5, "k1", target=None), KLPenalty(0.5, "k1", target=0.02)
    typed.load_state_dict(saved)
    adapting.load_state_dict(saved)
    assert (typed.coef, adapting.coef) == (0.5, 0.1)
