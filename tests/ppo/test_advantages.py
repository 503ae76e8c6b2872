"""ppo.advantages against numbers worked out by hand, the closed form and a slow recursion."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ppo.advantages import Batch, make_estimator, whiten
from ppo.advantages.gae import dual_discount_gae, dual_gae

PAPER = dict(gamma_step=0.99, lam_step=0.95, gamma_token=1.0, lam_token=1.0)


def one_env(*turns, width=None):
    """Turns of one environment as a mask-padded (E, 1, T) tensor."""
    width = width or max(map(len, turns))
    return torch.tensor([[list(t) + [0.0] * (width - len(t))] for t in turns], dtype=torch.float64)


def lengths_mask(*lengths, width=None):
    width = width or max(lengths)
    return torch.tensor([[[k < n for k in range(width)]] for n in lengths])


def column(*numbers, dtype=torch.float64):
    return torch.tensor([[x] for x in numbers], dtype=dtype)


def test_two_turns_by_hand():
    # two turns, reward r = 1 at the end; gamma_token = lam_token = 1, gamma_step .99, lam_step .95
    # last turn:   A = r - V                       -> 1 - .7 = .3,  1 - .6 = .4
    # first turn:  A = .99 [.95 r + .05 V(-1, 0)] - V = .97515 - V  with V(-1, 0) = .7
    values = one_env([0.3, 0.4, 0.1], [0.7, 0.6])
    rewards = one_env([0, 0, 0], [0, 1])
    advantages, returns = dual_discount_gae(
        rewards, values, lengths_mask(3, 2), column(0.7, 0.0), column(False, True), **PAPER
    )
    assert_close(advantages, one_env([0.67515, 0.57515, 0.87515], [0.3, 0.4]))
    assert_close(returns, one_env([0.97515, 0.97515, 0.97515], [1.0, 1.0]))


def test_token_discounts_by_hand():
    # one turn of three tokens, reward 1 on the last, V = 0, gamma_token = .5, lam_token = .5:
    # delta = 0, 0, 1; A = c^2, c, 1 with c = .25
    advantages, _ = dual_discount_gae(
        one_env([0, 0, 1]), one_env([0, 0, 0]), lengths_mask(3), column(0.0), column(True),
        gamma_step=0.9, lam_step=0.9, gamma_token=0.5, lam_token=0.5,
    )  # fmt: skip
    assert_close(advantages, one_env([0.0625, 0.25, 1.0]))


def test_both_discounts_by_hand():
    # turns of 2 and 1 tokens, V = 0 but V[1, 0] = 1, reward 2 at the end;
    # gamma_token = lam_token = .5, gamma_step = .8, lam_step = .5
    # A[1, 0] = 2 - 1 = 1
    # A[0, 1] = .8 * 1 + .8 * .5 * 1 = 1.2        the step pair, from last token to first token
    # A[0, 0] = .5 * .5 * 1.2 = .3                the token pair
    advantages, _ = dual_discount_gae(
        one_env([0, 0], [2]), one_env([0, 0], [1]), lengths_mask(2, 1), column(1.0, 0.0),
        column(False, True), gamma_step=0.8, lam_step=0.5, gamma_token=0.5, lam_token=0.5,
    )  # fmt: skip
    assert_close(advantages, one_env([0.3, 1.2], [1.0, 0.0]))


@pytest.mark.parametrize(
    ("next_value", "ends", "expected"),
    [
        # terminated: V_next = 0 and nothing flows back:   A = 0 - .5
        (0.0, True, -0.5),
        # proper time limit: V(final observation) = .8:    A = .9 * .8 - .5 = .22
        (0.8, True, 0.22),
        # same episode: V_next = V[1, 0] = .2, A[1, 0] = 1 - .2 = .8:
        #   A = .9 * .2 - .5 + .9 * .5 * .8 = .04
        (0.2, False, 0.04),
    ],
)
def test_episode_end_time_limit_and_going_on(next_value, ends, expected):
    advantages, _ = dual_discount_gae(
        one_env([0], [1]), one_env([0.5], [0.2]), lengths_mask(1, 1), column(next_value, 0.0),
        column(ends, True), gamma_step=0.9, lam_step=0.5, gamma_token=1.0, lam_token=1.0,
    )  # fmt: skip
    assert advantages[0, 0, 0].item() == pytest.approx(expected)


def test_batch_cut_bootstraps():
    # one turn, no reward, V = .5, V(s_{E+1}) = 2, gamma_step .9:  A = .9 * 2 - .5 = 1.3
    advantages, returns = dual_discount_gae(
        one_env([0, 0]), one_env([0.5, 0.5]), lengths_mask(2), column(2.0), column(False),
        gamma_step=0.9, lam_step=0.3, gamma_token=1.0, lam_token=1.0,
    )  # fmt: skip
    assert_close(advantages, one_env([1.3, 1.3]))
    assert_close(returns, one_env([1.8, 1.8]))


def scalar_recursion(rewards, values, mask, next_values, ends, gs, ls, gt, lt):
    """Eq. 2 token by token, one environment after the other."""
    E, N, T = values.shape
    advantages = torch.zeros_like(values)
    for n in range(N):
        later = 0.0  # advantage of the token after this one
        for t in reversed(range(E)):
            tokens = [k for k in range(T) if mask[t, n, k]]
            for place, k in reversed(list(enumerate(tokens))):
                if place == len(tokens) - 1:
                    later = 0.0 if ends[t, n] else later
                    gamma, lam, v_next = gs, ls, next_values[t, n].item()
                else:
                    gamma, lam, v_next = gt, lt, values[t, n, tokens[place + 1]].item()
                delta = rewards[t, n, k].item() + gamma * v_next - values[t, n, k].item()
                later = delta + gamma * lam * later
                advantages[t, n, k] = later
    return advantages


def random_batch(seed, E=5, N=3, T=9, holes=True):
    g = torch.Generator().manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=g, dtype=torch.float64)

    if holes:
        mask = rand(E, N, T) < 0.6
        mask[..., 4] |= ~mask.any(-1)
    else:
        lengths = torch.randint(1, T + 1, (E, N, 1), generator=g)
        mask = torch.arange(T) < lengths
    return rand(E, N, T) - 0.3, rand(E, N, T), mask, rand(E, N), rand(E, N) < 0.3


discount = st.floats(0, 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), discount, discount, discount, discount, st.booleans())
def test_equals_the_scalar_recursion(seed, gs, ls, gt, lt, holes):
    rewards, values, mask, next_values, ends = random_batch(seed, holes=holes)
    advantages, returns = dual_discount_gae(
        rewards, values, mask, next_values, ends, gs, ls, gt, lt
    )
    slow = scalar_recursion(rewards, values, mask, next_values, ends, gs, ls, gt, lt)
    assert_close(advantages, slow)
    assert_close(returns, torch.where(mask, slow + values, 0.0))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), discount, discount)
def test_closed_form_without_token_discounts(seed, gs, ls):
    """G[t,k] = sum_{j>=k} r + (not done) gs ((1 - ls) V[t+1,0] + ls G[t+1,0]),  A = G - V."""
    rewards, values, mask, next_values, ends = random_batch(seed, holes=False)
    E, N, T = values.shape
    next_values[:-1] = values[1:, :, 0]
    next_values[ends] = 0.0
    rewards = torch.where(mask, rewards, 0.0)
    following, G = next_values[-1].clone(), torch.zeros_like(values)
    for t in reversed(range(E)):
        after = gs * ((1 - ls) * next_values[t] + ls * following)
        G[t] = rewards[t].flip(-1).cumsum(-1).flip(-1) + torch.where(ends[t], 0.0, after)[:, None]
        following = G[t, :, 0]
    advantages, _ = dual_discount_gae(rewards, values, mask, next_values, ends, gs, ls, 1.0, 1.0)
    assert_close(advantages, torch.where(mask, G - values, 0.0))


def test_one_token_turns_are_plain_gae():
    """With turns of one token the token pair is never used: GAE over turns (Schulman 2016)."""
    rewards, values, mask, next_values, ends = random_batch(7, T=1, holes=False)
    advantages, _ = dual_discount_gae(
        rewards, values, mask, next_values, ends, 0.9, 0.8, gamma_token=0.123, lam_token=0.456
    )
    E, N, _ = values.shape
    plain, later = torch.zeros(E, N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    for t in reversed(range(E)):
        delta = rewards[t, :, 0] + 0.9 * next_values[t] - values[t, :, 0]
        later = delta + 0.9 * 0.8 * torch.where(ends[t], 0.0, later)
        plain[t] = later
    assert_close(advantages[..., 0], plain)


def test_padding_never_matters():
    rewards, values, mask, next_values, ends = random_batch(3, holes=False)
    clean, _ = dual_discount_gae(rewards, values, mask, next_values, ends, **PAPER)
    rewards[~mask], values[~mask] = float("nan"), float("inf")
    dirty, returns = dual_discount_gae(rewards, values, mask, next_values, ends, **PAPER)
    assert_close(dirty, clean)
    assert (returns[~mask] == 0).all()


def test_a_missing_turn_changes_nothing():
    rewards, values, mask, next_values, ends = random_batch(3, E=4, N=2)
    ends[2] = True  # environment 0 has three turns, environment 1 has four
    mask[3, 0], ends[3] = False, True
    whole = dual_discount_gae(rewards, values, mask, next_values, ends, **PAPER)
    short = [x[:3, :1] for x in (rewards, values, mask, next_values, ends)]
    for ours, alone in zip(whole, dual_discount_gae(*short, **PAPER), strict=True):
        assert_close(ours[:3, :1], alone)
        assert (ours[3, 0] == 0).all() and (ours[3, 1] != 0).any()


def test_whiten():
    # of 1, 2, 3 (the 9 is masked): mean 2, variance 2 / 3 -> -1.2247, 0, 1.2247
    white = whiten(
        torch.tensor([[1.0, 2.0], [3.0, 9.0]]), torch.tensor([[True, True], [True, False]])
    )
    assert_close(white, torch.tensor([[-1.224745, 0.0], [1.224745, 0.0]]))


# ---- estimators -------------------------------------------------------------------------------


def half(batch: Batch):
    """An estimator of a user's own: half of what dual-discount GAE says."""
    advantages, returns = dual_gae(batch)
    return advantages / 2, returns


def test_an_estimator_gets_a_batch_with_the_discounts_of_the_command_line():
    values, rewards = one_env([0.3, 0.4, 0.1], [0.7, 0.6]), one_env([0, 0, 0], [0, 1])
    turns = dict(
        rewards=rewards, values=values, response_mask=lengths_mask(3, 2),
        next_values=column(0.7, 0.0), episode_ends=column(False, True),
    )  # fmt: skip
    expected = dual_discount_gae(**turns, **PAPER)
    turns["steps"] = [[None], [None]]  # these estimators do not look at them
    for name, share in (("dual-gae", 1.0), ("test_advantages:half", 0.5)):
        estimate = make_estimator(SimpleNamespace(advantages=name, **PAPER))
        advantages, returns = estimate(**turns)
        assert_close(advantages, share * expected[0])
        assert_close(returns, expected[1])
