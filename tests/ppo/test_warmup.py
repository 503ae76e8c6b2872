"""The critic's warm-up: the actor stands still to the bit, the critic learns, and how well."""

from types import SimpleNamespace

import pytest
import torch
from conftest import (
    fill_batch,
    make_collection,
    make_lm,
    make_prompt,
    make_response,
    make_settings,
    make_step,
)  # fmt: skip
from torch.testing import assert_close

from common.ranks import ALONE
from ppo.advantages import make_estimator
from ppo.agent import Agent
from ppo.make import make_warm_up
from ppo.model.make import build
from ppo.warmup import WarmUp
from storage.batch import Batch

DISCOUNTS = dict(gamma_step=0.9, lam_step=0.95, gamma_token=1.0, lam_token=1.0)
ESTIMATOR = make_estimator(SimpleNamespace(advantages="dual-gae", **DISCOUNTS))


def make_agent(k=1, seed=0, **options) -> Agent:
    actor_critic = build(make_lm(std=0.1), k)
    settings = make_settings(**(dict(lr=0.1, critic_lr=0.2, minibatch=16) | options))
    return Agent(settings, actor_critic, torch.Generator().manual_seed(seed))


def warm_up(agent, rollouts, w_iter=3, w_fraction=0.5, w_lr=0.01) -> dict[str, float]:
    warm_up = WarmUp(w_iter, w_fraction, w_lr, 0.9)
    figures = warm_up(agent, rollouts, ESTIMATOR)
    assert warm_up.progress() == w_iter / (w_iter + 1)
    return figures


def snapshot(named) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in named}


@pytest.mark.parametrize("k", [0, 1, 2])
def test_only_the_critic_moves(k):
    agent = make_agent(k)
    before = snapshot(agent.actor_critic.named_parameters())
    warm_up(agent, fill_batch(E=4, N=8))
    for name, p in agent.actor_critic.named_parameters():
        if name.startswith("lm."):
            assert torch.equal(p, before[name]), name  # to the bit
        else:
            assert not torch.equal(p, before[name]), name
        assert p.grad is None, name


def test_the_actors_optimizer_state_is_untouched():
    agent = make_agent()
    warm_up(agent, fill_batch(E=4, N=8))
    actor, critic = (group["params"] for group in agent.optimizer.param_groups)
    assert not any(p in agent.optimizer.state for p in actor)  # no momentum to start PPO with
    assert all(p in agent.optimizer.state for p in critic)


def test_learning_rates_during_and_after():
    agent = make_agent(lr=0.1, critic_lr=0.2)
    seen, fit = [], agent.fit_critic

    def rate():
        return agent.optimizer.param_groups[1]["lr"]

    agent.fit_critic = lambda *a: seen.append(rate()) or fit(*a)
    warm_up(agent, fill_batch(E=4, N=8), w_iter=3, w_lr=0.05)
    assert seen == [0.05] * 3
    assert [group["lr"] for group in agent.optimizer.param_groups] == [0.1, 0.2]


def test_a_round_trains_on_its_share_of_the_turns_and_never_on_held_out_ones():
    # E = 5 turns of N = 16 environments; 3, 7, 11, 15 are held out: 5 * 12 = 60 turns, a tenth is 6
    agent = make_agent()
    chosen = []
    agent.fit_critic = lambda rollouts, rows: chosen.append(rows) or 0.0
    warm_up(agent, fill_batch(E=5, N=16), w_iter=30, w_fraction=0.1)
    assert [len(rows) for rows in chosen] == [6] * 30
    assert all(len(set(rows)) == 6 for rows in chosen)
    assert all(row % 4 != 3 for rows in chosen for row in rows)  # row t * 16 + n
    # 30 draws of 6 of 60 miss a given turn with probability .9^30 = .04: about 57 are seen
    assert len({row for rows in chosen for row in rows}) > 48
    assert len({tuple(rows) for rows in chosen}) == 30  # drawn anew each round


def test_a_group_is_held_out_as_a_whole():
    # Of groups of 2 the fourth. Its members play the same episodes: one would tell of the other.
    flags = SimpleNamespace(w_iter=1, w_fraction=1.0, w_lr=1e-3)
    held_out = make_warm_up(flags, gamma_step=0.9, group_size=2).held_out(10)
    assert held_out.nonzero().flatten().tolist() == [6, 7]
    alone = make_warm_up(flags, gamma_step=0.9, group_size=0).held_out(10)
    assert alone.nonzero().flatten().tolist() == [3, 7]


def test_each_round_has_fresh_values():
    agent = make_agent()
    seen, fit = [], agent.fit_critic
    agent.fit_critic = lambda rollouts, rows: (
        seen.append(rollouts.values.clone()) or fit(rollouts, rows)
    )
    rollouts = fill_batch(E=4, N=8)
    warm_up(agent, rollouts, w_iter=2)
    assert (seen[0] == 0).all()  # the head starts at zero output
    assert (seen[1] != 0).any()
    # the values that are left are those of the critic as it is now
    micro = next(rollouts.micro_batches(rollouts.rows))
    values = agent.actor_critic.values(micro)
    assert_close(rollouts.take(rollouts.values, micro.rows), values)


class Stub:
    """V before a token is the id of the token before it / 10."""

    def values(self, batch):
        return batch.ids[:, :-1][batch.response_mask[:, 1:]] / 10


def standing_agent():
    """An agent whose critic is the stub and stays it."""
    return SimpleNamespace(
        actor_critic=Stub(),
        ranks=ALONE,
        generator=torch.Generator().manual_seed(0),
        shuffled=lambda batch, rows: rows,
        begin_warm_up=lambda lr: None,
        end_warm_up=lambda: None,
        fit_critic=lambda rollouts, rows: 0.0,
    )


def batch_of(turns: dict[int, list], E: int) -> Batch:
    """turns: for each environment E pairs (V of the first token x 10, what its Step holds)."""
    rollouts = make_collection(E, len(turns))
    for n, played in turns.items():
        for last_id, step in played:
            rollouts.keep_response(n, make_response([1, last_id], [5]))
            step = make_step(**step)
            rollouts.insert(n, step)
            if rollouts.needs_bootstrap(step):
                rollouts.bootstrap(n, make_prompt([8]))
        rollouts.finish(n, make_prompt([9]))
    return rollouts.join()


def test_episodes_cut_by_faults_are_left_out_of_the_explained_variance():
    turns = {n: [(3, {}), (3, dict(truncated=True, fault="lost"))] for n in range(4)}
    figures = warm_up(standing_agent(), batch_of(turns, 2))
    assert not any("explained" in name for name in figures)


def test_the_held_out_explained_variance_of_a_constructed_case():
    filler = [(3, dict(reward=float(t % 2), terminated=True)) for t in range(4)]
    turns = dict.fromkeys(range(3), filler)
    turns[3] = [
        (6, dict()),
        (10, dict(reward=1.0, terminated=True)),
        (3, dict(truncated=True)),
        (90, dict(reward=50.0)),  # its episode goes on beyond the batch: not judged
    ]
    figures = warm_up(standing_agent(), batch_of(turns, 4))
    # held out is environment 3; gamma_step = .9: returns .9, 1, 0 against values .6, 1, .3
    # residuals .3, 0, -.3: variance .06; returns: mean 1.9 / 3, variance .2022; 1 - .06 / .2022
    assert figures["warmup/explained_variance_held_out"] == pytest.approx(0.7033, abs=1e-4)
    # the others: values all .3, which explain nothing of 0, 1, 0, 1
    assert figures["warmup/explained_variance_trained"] == pytest.approx(0.0, abs=1e-6)
    assert figures["warmup/turns"] == 16


def test_without_a_finished_episode_there_is_no_explained_variance():
    turns = {n: [(3, dict(reward=1.0))] for n in range(8)}
    figures = warm_up(standing_agent(), batch_of(turns, 1))
    assert "warmup/explained_variance_held_out" not in figures


def test_the_critic_learns_the_values_of_prompts():
    # prompts that end with 50 are worth 1, with 60 nothing
    worth = {50: 1.0, 60: 0.0}
    g = torch.Generator().manual_seed(0)

    def draw():
        return (50, 60)[int(torch.randint(2, (), generator=g))]

    turns = {}
    for n in range(16):
        ids = [draw() for _ in range(6)]
        turns[n] = [(i, dict(reward=worth[i], terminated=True)) for i in ids]
    agent, rollouts = make_agent(), batch_of(turns, 6)
    figures = warm_up(agent, rollouts, w_iter=30, w_fraction=1.0, w_lr=0.003)
    assert figures["warmup/explained_variance_held_out"] > 0.9
    assert figures["warmup/value_loss"] < 0.05  # .25 for values that are all 0
