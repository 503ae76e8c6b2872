"""`--clip episode:X`: which turns share a ratio, what it is, and minibatches of whole episodes."""

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from conftest import fill_batch, make_lm, make_settings
from torch.testing import assert_close

from ppo.advantages import make_estimator
from ppo.agent import Agent
from ppo.criticless import CriticlessAgent
from ppo.episode_ratios import episode_logps, number_episodes, with_episode_ratios
from ppo.make import make_agent
from ppo.model.actor_critic import Reference
from ppo.model.make import build
from ppo.terms import make_policy_loss

ESTIMATOR = make_estimator(
    SimpleNamespace(
        advantages="dual-gae", gamma_step=0.99, lam_step=0.95, gamma_token=1.0, lam_token=1.0
    )
)


def over_episodes(actor_critic, **settings) -> Agent:
    generator, loss = torch.Generator().manual_seed(0), make_policy_loss("episode:0.01", None)
    made = with_episode_ratios(Agent)
    return made(make_settings(**settings), actor_critic, generator, policy_loss=loss)


def test_turns_are_numbered_by_episode():
    # environment 0 ends an episode with its second turn, environment 1 with its first and third
    ends = torch.tensor([[False, True], [True, False], [False, True], [False, False]])
    first, second = [0, 0, 1, 1], [0, 1, 1, 2]  # episodes that ended before each turn
    expected = [[2 * a, 2 * b + 1] for a, b in zip(first, second, strict=True)]
    assert number_episodes(ends).view(4, 2).tolist() == expected


def test_turns_of_an_episode_share_a_ratio():
    # turn 0: ratios 8 and 1; turn 1: 1/2. Together the geometric mean is 4 ** (1/3).
    # turn 2 is another episode's, with a ratio of 1/2
    mask = torch.tensor([[True, True], [True, False], [True, False]])
    batch = SimpleNamespace(masks=lambda rows: mask[rows])
    micro = SimpleNamespace(rows=torch.tensor([0, 1, 2]))
    logps = torch.tensor([math.log(8.0), 0.0, -1.0, -2.0], requires_grad=True)
    moved = torch.tensor([math.log(4.0) / 3, math.log(4.0) / 3, -math.log(2.0)])
    ratio = (logps - episode_logps(batch, micro, logps, moved)).exp()
    assert_close(ratio, torch.tensor([4 ** (1 / 3)] * 3 + [0.5]))
    ratio.sum().backward()  # d ratio / d logp is the ratio, as a token's own ratio would have it
    assert_close(logps.grad, ratio.detach())


def test_an_episode_moves_by_the_mean_of_its_tokens():
    actor_critic = build(make_lm(std=0.1), 1)
    batch = fill_batch(E=4, N=3, token_budget=40)
    agent = over_episodes(actor_critic, minibatch=6)
    batch.score(actor_critic, Reference(actor_critic.lm), agent.plan(batch)[0])
    before = batch.logps.clone()
    g = torch.Generator().manual_seed(3)
    batch.logps -= torch.randn(before.shape, generator=g) * batch.response_mask
    numbers, gaps = number_episodes(batch.episode_ends), before - batch.logps
    lengths = batch.response_mask.flatten(0, 1).sum(-1)
    for rows in agent.plan(batch)[0]:
        moved = agent._moved(batch, rows)
        for row in rows:
            same = numbers == numbers[row]
            mean = gaps.flatten(0, 1)[same].sum() / lengths[same].sum()
            assert moved[row].item() == pytest.approx(mean.item(), abs=1e-4)


@pytest.mark.parametrize("minibatch", [1, 3, 5, 100])
def test_minibatches_hold_whole_episodes(minibatch):
    batch = fill_batch(E=6, N=4)
    numbers = number_episodes(batch.episode_ends).tolist()
    agent = over_episodes(build(make_lm(), 1), minibatch=minibatch, ppo_epoch=2)
    first, second = agent.plan(batch)
    assert first != second or len(first) == 1
    for chunks in (first, second):
        assert sorted(sum(chunks, [])) == list(range(24))
        of = [{numbers[row] for row in chunk} for chunk in chunks]
        assert sum(map(len, of)) == len(set(numbers))  # no episode is in two minibatches
        longest = max(numbers.count(number) for number in numbers)
        assert all(minibatch / 2 <= len(chunk) for chunk in chunks[:-1])
        assert max(map(len, chunks)) < 1.5 * minibatch + longest
    if minibatch == 100:
        assert len(first) == 1


def test_the_first_ratios_are_1_and_later_ones_are_not():
    actor_critic = build(make_lm(std=0.1), 1)
    batch = fill_batch(E=6, N=4, token_budget=60)
    agent = over_episodes(actor_critic, minibatch=8, ppo_epoch=3, lr=0.02)
    plan = agent.plan(batch)
    batch.score(actor_critic, Reference(actor_critic.lm), plan[0])
    batch.compute_returns(ESTIMATOR)
    figures = agent.update(batch, plan)
    assert figures["ppo/ratio_first_minibatch"] == pytest.approx(1.0, abs=1e-5)
    assert figures["ppo/approx_kl"] > 1e-4


def test_the_flag_makes_such_an_agent():
    flags = partial(make_settings, zero_stage=0, offload_optimizer=False, tis_cap=None)
    ranks = SimpleNamespace(size=1, device="cpu")
    for no_critic, kind in ((False, Agent), (True, CriticlessAgent)):
        model = build(make_lm(), None if no_critic else 1)
        settings = flags(no_critic=no_critic, clip="episode:0.1:0.2")
        agent = make_agent(settings, model, ranks, 0)
        assert isinstance(agent, kind) and type(agent) is not kind
        assert type(make_agent(flags(no_critic=no_critic, clip=0.2), model, ranks, 0)) is kind
