"""`--train top:K`: the numbers of the plain model, of which the lower layers stay as they are."""

from unittest.mock import patch

import pytest
import torch
from conftest import batch, fill_batch, make_lm, make_settings
from torch.testing import assert_close

from common.plugins import UserError
from ppo.advantages import make_estimator
from ppo.agent import Agent
from ppo.model import top_layers
from ppo.model.actor_critic import Reference
from ppo.model.make import build
from ppo.model.top_layers import TopLayers, TopLayersReference

TURNS = batch(([3, 4, 5], [6, 7]), ([8, 9], [10, 11, 12]))
SETTINGS = make_settings(
    advantages="dual-gae", gamma_step=0.9, lam_step=0.95, gamma_token=1.0, lam_token=1.0
)
ESTIMATOR = make_estimator(SETTINGS)
E, N = 3, 4


def frozen_by_hand(lm, k: int):
    """Freeze what K = k leaves as it is."""
    trained = [
        *lm.model.layers[len(lm.model.layers) - k :].parameters(),
        *lm.model.norm.parameters(),
    ]
    lm.requires_grad_(False)
    for parameter in trained:
        parameter.requires_grad_(True)
    return lm


def updated(actor_critic, reference, **settings):
    """Return the log-probs of two batches, each before an update, and the parameters after both."""
    agent = Agent(make_settings(**settings), actor_critic, torch.Generator().manual_seed(0))
    scored = []
    for seed in (1, 2):
        rollouts = fill_batch(E, N, seed=seed)
        plan = agent.plan(rollouts)
        rollouts.score(actor_critic, reference, plan[0])
        rollouts.compute_returns(ESTIMATOR)
        agent.update(rollouts, plan)
        scored += [rollouts.logps, rollouts.ref_logps, rollouts.values]
    return scored, dict(actor_critic.named_parameters())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("k", "critic_layers"), [(1, 0), (1, 1), (1, 2), (2, 1)])
def test_updates_are_those_of_a_model_with_frozen_layers(k, critic_layers, packed):
    torch.manual_seed(3)  # of the heads
    plain = build(frozen_by_hand(make_lm(std=0.1), k), critic_layers, packed=packed)
    plain.branch.requires_grad_(True)  # the critic's copies of frozen layers are trained
    settings = dict(ppo_epoch=2, minibatch=6)
    scored, parameters = updated(plain, Reference(plain.lm, plain.compute), **settings)
    ours = build(make_lm(std=0.1), critic_layers, packed=packed, top_layers=k)
    begun = {name: p.clone() for name, p in ours.lm.named_parameters()}
    our_scores, our_parameters = updated(ours, TopLayersReference(ours), **settings)
    assert_close(our_scores, scored, rtol=0, atol=0)
    assert_close(our_parameters, parameters, rtol=0, atol=0)
    changed = {name for name, p in ours.lm.named_parameters() if not p.equal(begun[name])}
    assert changed == {name for name, p in ours.lm.named_parameters() if p.requires_grad}
    assert {name.split(".")[2] for name in changed if "layers" in name} == {*"01"[2 - k :]}


def test_frozen_layers_are_computed_once_for_what_is_scored_and_trained():
    actor_critic, rows = build(make_lm(), 1, top_layers=1), []
    keep = actor_critic.states.keep
    with patch.object(
        actor_critic.states,
        "keep",
        lambda micro, hidden: rows.extend(micro.rows) or keep(micro, hidden),
    ):
        updated(actor_critic, TopLayersReference(actor_critic), minibatch=6)
    turns = E * N
    assert sorted(map(int, rows)) == sorted([*range(turns)] * 2)
    assert len(actor_critic.states.states) == turns // 6  # those of the second batch alone


def test_without_room_the_results_are_the_same(monkeypatch):
    found = []
    for free in (10**9, 0):
        monkeypatch.setattr(top_layers, "free_bytes", lambda free=free: free)
        torch.manual_seed(3)
        actor_critic = build(make_lm(std=0.1), 1, top_layers=1)
        found.append(updated(actor_critic, TopLayersReference(actor_critic), minibatch=6))
        assert bool(actor_critic.states.states) == bool(free)
    assert_close(*found, rtol=0, atol=0)


def test_an_actor_without_a_critic():
    actor = build(make_lm(std=0.1), None, top_layers=1)
    assert isinstance(actor, TopLayers)
    assert_close(actor(TURNS).logps, build(make_lm(std=0.1), None)(TURNS).logps)
    actor(TURNS).logps.sum().backward()
    moved = {name for name, p in actor.named_parameters() if p.grad is not None}
    assert moved == {name for name, p in actor.named_parameters() if p.requires_grad}


def test_more_layers_than_there_are():
    with pytest.raises(UserError, match="^--train top:3 is above the 2 layers of this model$"):
        build(make_lm(), 1, top_layers=3)
