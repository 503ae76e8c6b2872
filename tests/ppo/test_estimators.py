"""The estimators that dual-discount GAE is compared with, by hand and against slow versions.

A test writes the episodes of each environment as lists of turns; a turn is a list of rewards, one
for each token. `batch_of` pads them to (E, N, T).
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ppo.advantages import Batch
from ppo.advantages.compared import anchors_of, groups_of
from ppo.advantages.gae import dual_gae
from ppo.advantages.gae_variants import token_gae, turn_gae
from ppo.advantages.groups import EPS, gigpo, grpo, rloo

PAPER = dict(gamma_step=0.99, lam_step=0.95, gamma_token=1.0, lam_token=1.0)
GROUPED = (rloo, grpo, gigpo)


class Turn:
    """The fields of a Step that say which turns may be compared."""

    def __init__(self, seed, episode=0, previous_digest="", fault=""):
        self.seed, self.episode, self.fault = seed, episode, fault
        self.previous_digest = previous_digest


def batch_of(envs, seeds, values=0.0, shown=None, gap=False, dtype=torch.float64, **discounts):
    """envs: for each environment its episodes; seeds: of each episode; shown: number of the
    observation of each turn, environment by environment; gap: a token of each turn is masked."""
    columns = [[turn for episode in env for turn in episode] for env in envs]
    E, N = max(map(len, columns)), len(envs)
    T = max(len(turn) for column in columns for turn in column) + gap
    rewards, mask = torch.full((E, N, T), 9.0, dtype=dtype), torch.zeros(E, N, T).bool()
    ends = torch.ones(E, N).bool()
    steps = [[None] * N for _ in range(E)]
    for n, env in enumerate(envs):
        t = 0
        for episode, seed in zip(env, seeds[n], strict=True):
            for k, turn in enumerate(episode):
                at = [i + (gap and i > 0) for i in range(len(turn))]
                rewards[t, n, at], mask[t, n, at] = torch.tensor(turn, dtype=dtype), True
                ends[t, n] = k == len(episode) - 1
                steps[t][n] = Turn(seed, previous_digest=str(shown[n][t] if shown else t))
                t += 1
    values = torch.full((E, N, T), values, dtype=dtype)
    return Batch(rewards, values, mask, torch.zeros(E, N), ends, steps,
                 **(PAPER | discounts))  # fmt: skip


def turns_of(advantages, batch):
    """One number for each turn that is there, in lists by environment; a turn's tokens agree."""
    numbers = []
    for n in range(advantages.shape[1]):
        numbers.append([])
        for a, m in zip(advantages[:, n], batch.response_mask[:, n], strict=True):
            assert (a[~m] == 0).all()
            if m.any():
                assert len(set(a[m].tolist())) == 1
                numbers[-1].append(round(a[m][0].item(), 6))
    return numbers


# four environments, two groups; an episode each, of 2, 1, 1 and 3 turns
FOUR = [[[[0, 0], [1]]], [[[0]]], [[[0, 2]]], [[[0], [0, 0], [1]]]]
SEEDS = [[4], [4], [6], [6]]


def test_rloo_by_hand():
    # R = 1, 0 | 2, 1; each less the other one of its group
    assert turns_of(rloo(batch_of(FOUR, SEEDS)), batch_of(FOUR, SEEDS)) == [
        [1, 1], [-1], [1], [-1, -1, -1]]  # fmt: skip
    # one group of three, R = 3, 0, 0: 3 - 0; 0 - 3 / 2
    three = batch_of([[[[3]]], [[[0]]], [[[0]]]], [[2]] * 3)
    assert turns_of(rloo(three), three) == [[3], [-1.5], [-1.5]]


def test_grpo_by_hand():
    # R = 2, 0, 0, 2: mean 1, squares 1 each, their sum over G - 1 is 4 / 3, deviation 1.154701
    batch = batch_of([[[[1], [1]]], [[[0]]], [[[0], [0]]], [[[2]]]], [[2]] * 4)
    a = round(1 / (math.sqrt(4 / 3) + EPS), 6)
    assert turns_of(grpo(batch), batch) == [[a, a], [-a], [-a, -a], [a]]


def test_an_episode_counts_once_however_long_it_is():
    # counted by turns, the mean would be .75 and not .5
    batch = batch_of([[[[0], [0], [1]]], [[[0]]]], [[2]] * 2)
    a = round(0.5 / (math.sqrt(0.5) + EPS), 6)
    assert turns_of(grpo(batch), batch) == [[a] * 3, [-a]]


def test_gigpo_by_hand():
    # One seed, gamma .5. Environment 0 sees 1, 2, 1 and wins: G = .25, .5, 1. Environment 1 sees 1,
    # 3 and loses .5: G = -.25, -.5. R = 1 and -.5, mean .25: +-.75.
    # Observation 1 was seen three times: mean (.25 + 1 - .25) / 3 = 1 / 3; 2 and 3 are alone.
    batch = batch_of(
        [[[[0], [0], [1]]], [[[0], [-0.5]]]], [[2]] * 2, shown=[[1, 2, 1], [1, 3]], gamma_step=0.5
    )
    third = 1 / 3
    expected = [[0.75 + 0.25 - third, 0.75, 0.75 + 1 - third], [-0.75 - 0.25 - third, -0.75]]
    assert turns_of(gigpo(batch), batch) == [[round(x, 6) for x in env] for env in expected]


def test_gigpo_compares_no_observation_across_groups():
    # the same observations in both groups, where each is seen once: episodes alone decide
    batch = batch_of(FOUR, SEEDS, shown=[[1, 2], [3], [1], [4, 2, 3]])
    assert turns_of(gigpo(batch), batch) == [[0.5] * 2, [-0.5], [0.5], [-0.5] * 3]


def test_several_episodes_of_an_environment():
    # environment 0 plays seeds 2 and 4, environment 1 as well; a group is a seed, not a place
    envs = [[[[1]], [[0], [0]]], [[[0], [0]], [[5]]]]
    batch = batch_of(envs, [[2, 4], [2, 4]])
    assert turns_of(rloo(batch), batch) == [[1, -5, -5], [-1, -1, 5]]


@pytest.mark.parametrize("estimator", GROUPED)
def test_equal_returns_give_advantages_of_0(estimator):
    # .1 + .2 and .3 differ in their last bit: a tie that rounding breaks is still a tie
    envs = [[[[0.1], [0.2]]], [[[0.3]]], [[[0.1, 0.1], [0.1]]]]
    for dtype in (torch.float64, torch.float32):
        batch = batch_of(envs, [[2]] * 3, shown=[[1, 2], [3], [4, 5]], dtype=dtype)
        assert estimator(batch).abs().max() < 1e-3
    for reward in (0.0, -2.5, 1 / 3):
        batch = batch_of([[[[reward]]]] * 8, [[2]] * 8, dtype=torch.float32)
        assert (estimator(batch) == 0).all()


@pytest.mark.parametrize("estimator", GROUPED)
def test_an_episode_without_another_one_of_its_group_gets_0(estimator):
    # although it sees the same observation twice
    batch = batch_of([[[[1], [1]]], [[[5]]]], [[2], [4]], shown=[[1, 1], [1]])
    assert (estimator(batch) == 0).all()


def slow(name, envs, seeds, shown, gamma):
    """Advantages of all turns, environment by environment, with lists alone."""
    episodes = []  # (environment, seed, rewards of the turns, their observations)
    for n, env in enumerate(envs):
        seen = iter(shown[n])
        for episode, seed in zip(env, seeds[n], strict=True):
            episodes.append(
                (n, seed, [sum(turn) for turn in episode], [next(seen) for _ in episode])
            )
    found = [[] for _ in envs]
    for n, seed, rewards, observations in episodes:
        group = [sum(r) for _, s, r, _ in episodes if s == seed]
        own, G = sum(rewards), len(group)
        mean = sum(group) / G
        deviation = math.sqrt(sum((x - mean) ** 2 for x in group) / max(1, G - 1))
        for k, observation in enumerate(observations):
            if name == "rloo":
                a = own - (sum(group) - own) / (G - 1) if G > 1 else 0.0
            elif name == "grpo":
                a = (own - mean) / (deviation + EPS)
            else:
                alike = [to_go(r, j, gamma) for _, s, r, o in episodes if s == seed
                         for j, other in enumerate(o) if other == observation]  # fmt: skip
                step = to_go(rewards, k, gamma) - sum(alike) / len(alike)
                a = own - mean + (step if G > 1 else 0.0)
            found[n].append(a)
    return found


def to_go(rewards, k, gamma):
    return sum(gamma**i * r for i, r in enumerate(rewards[k:]))


rewards = st.sampled_from([0.0, 0.0, 1.0, -0.1, 0.25])
turn = st.lists(rewards, min_size=1, max_size=3)
episode = st.lists(turn, min_size=1, max_size=4)
environment = st.lists(episode, min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(st.lists(environment, min_size=1, max_size=5), st.data())
def test_groups_equal_slow_versions(envs, data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    seeds = [[draw(-1, 1) for _ in env] for env in envs]  # ragged groups, lonely ones too
    shown = [[draw(1, 3) for episode in env for _ in episode] for env in envs]
    gamma = data.draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]))
    batch = batch_of(envs, seeds, shown=shown, gap=data.draw(st.booleans()), gamma_step=gamma)
    for estimator in GROUPED:
        expected = slow(estimator.__name__, envs, seeds, shown, gamma)
        for ours, theirs in zip(turns_of(estimator(batch), batch), expected, strict=True):
            assert ours == pytest.approx(theirs, abs=2e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(environment, min_size=2, max_size=5), st.integers(0, 2), st.floats(0.1, 3))
def test_properties_of_groups(envs, shift, scale):
    seeds = [[k % 2 for k in range(len(env))] for env in envs]
    batch = batch_of(envs, seeds)
    once = torch.zeros_like(batch.episode_ends)  # one turn of each episode: its last
    once[batch.turn_mask & batch.episode_ends] = True
    for estimator in (rloo, grpo):
        of_turns = estimator(batch).sum(-1) / batch.response_mask.sum(-1)
        for seed in (0, 1):  # the episodes of a group add up to 0
            assert of_turns[once & (groups_of(batch.steps) == seed)].sum().abs() < 1e-6
    # the same reward for all episodes of a group changes nothing, and a scale only the scale
    last = torch.where(once.unsqueeze(-1), batch.response_mask, False)
    last &= last.cumsum(-1) == 1
    shifted = replace(batch, rewards=batch.rewards + shift * last)
    scaled = replace(batch, rewards=batch.rewards * scale)
    assert_close(rloo(shifted), rloo(batch))
    assert_close(rloo(scaled), scale * rloo(batch))
    assert_close(grpo(shifted), grpo(batch), atol=1e-5, rtol=1e-5)
    # environments are in no order
    order = torch.randperm(len(envs), generator=torch.Generator().manual_seed(shift))
    names = ("rewards", "values", "response_mask", "next_values", "episode_ends")
    steps = [[row[n] for n in order.tolist()] for row in batch.steps]
    mixed = replace(batch, steps=steps, **{name: getattr(batch, name)[:, order] for name in names})
    for estimator in GROUPED:
        assert_close(estimator(mixed), estimator(batch)[:, order])


# ---- with a critic ------------------------------------------------------------------------------


def test_turn_gae_by_hand():
    # V(s_0, 0) = .5, V(s_1, 0) = .2, rewards of turns .1 and 1; gamma .9, lam .5
    # A_1 = 1 - .2 = .8;  A_0 = .1 + .9 * .2 - .5 + .9 * .5 * .8 = .14
    batch = batch_of([[[[0.0, 0.1], [0.0, 0.0, 1.0]]]], [[2]], gamma_step=0.9, lam_step=0.5)
    values = torch.tensor([[[0.5, 7.0, 7.0]], [[0.2, 7.0, 7.0]]], dtype=torch.float64)
    batch = replace(batch, values=values, next_values=torch.tensor([[0.2], [0.0]]).double())
    advantages, returns = turn_gae(batch)
    assert turns_of(advantages, batch) == [[0.14, 0.8]]
    assert turns_of(returns, batch) == [[0.64, 1.0]]  # A + V(s_t, 0)


def test_turn_gae_is_dual_gae_where_turns_are_single_tokens():
    envs = [[[[0.3], [0.1], [1.0]]], [[[0.5]], [[-0.1]]]]
    batch = batch_of(envs, [[2], [2, 4]], values=0.4, gamma_step=0.9, lam_step=0.7)
    for ours, theirs in zip(turn_gae(batch), dual_gae(batch), strict=True):
        assert_close(ours, theirs)


def test_token_gae_ignores_turn_boundaries():
    # gamma .5, lam .5, V = 0: delta = 0 0 | 0 1, A = c^3, c^2, c, 1 with c = .25, turns or not
    batch = batch_of([[[[0, 0], [0, 1]]]], [[2]], gamma_token=0.5, lam_token=0.5)
    advantages, returns = token_gae(batch)
    assert advantages[batch.response_mask].tolist() == [1 / 64, 1 / 16, 1 / 4, 1]
    assert_close(returns, advantages)
    one = batch_of([[[[0, 0, 0, 1]]]], [[2]], gamma_token=0.5, lam_token=0.5)
    assert_close(token_gae(one)[0].flatten(), advantages.flatten())


@settings(max_examples=30, deadline=None)
@given(st.lists(environment, min_size=1, max_size=4), st.booleans())
def test_missing_turns_and_masked_tokens_stay_0(envs, gap):
    batch = batch_of(envs, [[0] * len(env) for env in envs], values=0.3, gap=gap)
    for estimator in (dual_gae, token_gae, turn_gae):
        for result in estimator(batch):
            assert (result[~batch.response_mask] == 0).all() and result.isfinite().all()
    # environments do not change each other, however long the others are
    for n in range(len(envs)):
        alone = batch_of([envs[n]], [[0] * len(envs[n])], values=0.3, gap=gap)
        E, _, T = alone.rewards.shape
        for estimator in (dual_gae, token_gae, turn_gae):
            for ours, theirs in zip(estimator(batch), estimator(alone), strict=True):
                assert_close(ours[:E, n : n + 1, :T], theirs)


# ---- what is compared ---------------------------------------------------------------------------


def test_groups_are_seeds_and_faults_are_alone():
    turns = [[Turn(8), Turn(8)], [Turn(8), Turn(8, fault="lost")], [Turn(6, episode=1), None]]
    groups = groups_of(turns)
    assert groups[:2, 0].tolist() == [8, 8] and groups[2].tolist() == [6, 0]
    assert groups[0, 1] == groups[1, 1] < 0  # the whole episode that the fault cut


def test_anchors_are_observations():
    turns = [
        [Turn(8, previous_digest="a"), Turn(8, previous_digest="a")],
        [Turn(8, previous_digest="b"), None],
        [Turn(8, previous_digest="a"), None],
    ]
    anchors = anchors_of(turns)
    assert anchors[0, 0] == anchors[0, 1] == anchors[2, 0] != anchors[1, 0]
