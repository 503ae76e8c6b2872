"""The PPO update: first minibatch, gradients, denominators, schedule, and what is skipped."""

from dataclasses import replace
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
from torch.nn import functional as F
from torch.testing import assert_close

from ppo.advantages import make_estimator, whiten
from ppo.agent import Agent
from ppo.kl import KLPenalty
from ppo.model.actor_critic import ActorCritic, Reference
from ppo.model.make import build
from ppo.optimizer import norm_of_gradients
from run.figures import update_figures
from storage.batch import Batch
from storage.minibatch import OnePerTurn

DISCOUNTS = dict(gamma_step=0.99, lam_step=0.95, gamma_token=1.0, lam_token=1.0)
ESTIMATOR = make_estimator(SimpleNamespace(advantages="dual-gae", **DISCOUNTS))


def make_agent(actor_critic, seed=0, **settings) -> Agent:
    return Agent(make_settings(**settings), actor_critic, torch.Generator().manual_seed(seed))


def update(agent, rollouts) -> dict[str, float]:
    plan = agent.plan(rollouts)
    return agent.update(rollouts, plan) | update_figures(rollouts, plan)


def make_actor_critic(lm=None, k=1, **options) -> ActorCritic:
    """With a critic that is not 0 everywhere."""
    actor_critic = build(lm or make_lm(std=0.1), k, **options)
    torch.manual_seed(1)
    torch.nn.init.normal_(actor_critic.head.weight, std=0.1)
    return actor_critic


def score(rollouts, actor_critic, minibatch=12) -> Batch:
    """Score along the first epoch of `make_agent(..., minibatch=minibatch)`."""
    plan = make_agent(actor_critic, minibatch=minibatch).plan(rollouts)
    rollouts.score(actor_critic, Reference(actor_critic.lm), plan[0])
    rollouts.penalise_kl(KLPenalty(0.001, "k1", None))
    rollouts.compute_returns(ESTIMATOR)
    return rollouts


def gradient_of(agent, rollouts, rows) -> dict[str, torch.Tensor]:
    """The gradient that a minibatch of `rows` accumulates, before it is clipped."""
    agent.actor_critic.zero_grad(set_to_none=True)
    agent._minibatch(rollouts, whiten(rollouts.advantages, rollouts.response_mask), rows)
    named = agent.actor_critic.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def two_turns(actor_critic, *responses) -> Batch:
    """One turn in each of two environments, scored; advantages and returns are set by the test."""
    responses = responses or ([5], [6, 7, 8])
    rollouts = make_collection(1, 2)
    for n, ids in enumerate(responses):
        rollouts.keep_response(n, make_response([9, 10, 11 + n], ids))
        rollouts.insert(n, make_step(reward=float(n)))
        rollouts.finish(n, make_prompt([3]))
    return score(rollouts.join(), actor_critic)


def set_budget(rollouts, token_budget: int) -> None:
    rollouts.scoring = replace(rollouts.scoring, token_budget=token_budget)


def snapshot(actor_critic) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in actor_critic.named_parameters()}


# ---- the first minibatch --------------------------------------------------------------------


def test_policy_loss_of_the_first_minibatch_is_minus_the_mean_advantage():
    actor_critic = make_actor_critic()
    rollouts = two_turns(actor_critic)
    # advantages 3 | -1 -1 -1 over the four tokens of the batch: mean 0, variance (9 + 3) / 4 = 3,
    # whitened 3^.5 | -3^-.5 three times; the ratio is 1, so the loss is -A
    rollouts.advantages = torch.tensor([[[3.0, 0, 0], [-1, -1, -1]]])
    white = whiten(rollouts.advantages, rollouts.response_mask)
    for rows, expected in (([0], -(3**0.5)), ([1], 3**-0.5), ([0, 1], 0.0)):
        sums, ratio = make_agent(actor_critic)._minibatch(rollouts, white, rows)
        loss = sums["policy_loss"] / sums["tokens"]
        assert loss == pytest.approx(expected, abs=1e-5)
        assert ratio == pytest.approx(1.0, abs=1e-5)
        assert sums["clipfrac"] == 0 and abs(sums["approx_kl"]) < 1e-5


@pytest.mark.parametrize("budgets", [(10**6, 20), (20, 10**6), (1, 45)])
def test_ratio_is_1_whatever_the_micro_batches_of_score_and_update(budgets):
    actor_critic = make_actor_critic(make_lm())
    rollouts = fill_batch(token_budget=budgets[0])
    score(rollouts, actor_critic)
    set_budget(rollouts, budgets[1])
    metrics = update(make_agent(actor_critic, minibatch=4, lr=0.0, critic_lr=0.0), rollouts)
    # nothing moves: no minibatch is clipped, and -mean(A) of whitened advantages is 0
    assert metrics["ppo/ratio_first_minibatch"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["ppo/clipfrac"] == 0.0
    assert metrics["ppo/approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["ppo/policy_loss"] == pytest.approx(0.0, abs=1e-5)


def test_the_ratio_is_that_of_the_first_minibatch_only():
    actor_critic = make_actor_critic()
    rollouts = score(fill_batch(), actor_critic, minibatch=4)
    metrics = update(make_agent(actor_critic, minibatch=4, ppo_epoch=3, lr=0.02), rollouts)
    assert metrics["ppo/ratio_first_minibatch"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["ppo/approx_kl"] > 0.001 and metrics["ppo/clipfrac"] > 0.01


def test_in_bf16_the_ratios_of_the_first_epoch_are_exactly_1():
    actor_critic = make_actor_critic(make_lm(std=0.3), dtype=torch.bfloat16)
    rollouts = score(fill_batch(E=6, N=8, token_budget=80), actor_critic, minibatch=12)
    metrics = update(make_agent(actor_critic, minibatch=12, lr=0.0, critic_lr=0.0), rollouts)
    assert metrics["ppo/ratio_first_minibatch"] == 1.0 and metrics["ppo/approx_kl"] == 0.0


def test_the_ratio_farthest_from_1_is_reported():
    actor_critic = make_actor_critic()
    rollouts = two_turns(actor_critic)
    # old log-probs moved by log 1.25 down and log 2 up: the ratios are 1.25 and .5, |.5 - 1| wins
    rollouts.logps[0, 0, 0] -= torch.tensor(1.25).log()
    rollouts.logps[0, 1, 2] += torch.tensor(2.0).log()
    metrics = update(make_agent(actor_critic, minibatch=2), rollouts)
    assert metrics["ppo/ratio_first_minibatch"] == pytest.approx(0.5, abs=1e-5)


def test_an_update_makes_good_tokens_likelier_and_values_closer():
    actor_critic = make_actor_critic()
    rollouts = score(fill_batch(), actor_critic)
    update(make_agent(actor_critic, minibatch=12, lr=1e-3, critic_lr=1e-3), rollouts)
    mask, returns = rollouts.response_mask, rollouts.returns.clone()
    old_logps, old_values = rollouts.logps.clone(), rollouts.values.clone()
    white = whiten(rollouts.advantages, mask)
    score(rollouts, actor_critic)
    assert ((rollouts.logps - old_logps) * white)[mask].sum() > 0
    assert (rollouts.values - returns)[mask].square().sum() < (
        (old_values - returns)[mask].square().sum()
    )


# ---- gradients ------------------------------------------------------------------------------


def equal(one: dict, other: dict, atol=1e-6) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert_close(one[name], other[name], atol=atol, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("k", [1, 0])
def test_gradients_do_not_depend_on_micro_batches(k):
    actor_critic = make_actor_critic(k=k)
    agent = make_agent(actor_critic, entropy_coef=0.01)
    rollouts = score(fill_batch(), actor_critic)
    rows = list(range(12))
    gradients, cuts = [], []
    # 12 turns of 6 to 16 tokens: budgets that give 1, 2, 4 and 12 micro-batches
    for token_budget in (10**6, 110, 48, 1):
        set_budget(rollouts, token_budget)
        cuts.append(len(list(rollouts.micro_batches(rows))))
        gradients.append(gradient_of(agent, rollouts, rows))
    assert cuts == [1, 2, 4, 12]
    assert max(g.abs().max() for g in gradients[0].values()) > 0.01  # not equal by being 0
    for gradient in gradients[1:]:
        equal(gradient, gradients[0])


def test_gradients_do_not_depend_on_padding():
    actor_critic = make_actor_critic()
    agent = make_agent(actor_critic, entropy_coef=0.01)
    rollouts = score(fill_batch(), actor_critic)
    plain, forward = gradient_of(agent, rollouts, [0, 5, 7]), actor_critic.forward

    def wider(batch, **options):
        ids, mask = F.pad(batch.ids, (0, 6), value=77), F.pad(batch.response_mask, (0, 6))
        return forward(replace(batch, ids=ids, response_mask=mask), **options)

    actor_critic.forward = wider
    equal(gradient_of(agent, rollouts, [0, 5, 7]), plain)


def test_prompt_and_padding_positions_have_no_gradient():
    """The losses look at the hidden states from the last prompt token to the last but one of the
    response, the ones that predict response tokens: everywhere else the gradient is exactly 0."""
    actor_critic = make_actor_critic()
    agent = make_agent(actor_critic, entropy_coef=0.1)
    rollouts = two_turns(actor_critic, [5], [6, 7, 8])  # prompts of three tokens, width 6
    states = []

    def keep(_, __, hidden):
        hidden.retain_grad()
        states.append(hidden)

    actor_critic.lm.model.layers[-1].register_forward_hook(keep)
    actor_critic.branch[-1].register_forward_hook(keep)
    gradient_of(agent, rollouts, [0, 1])
    for state in states:  # of the actor, of the critic
        decides = state.grad.abs().sum(-1) > 0  # (B, L)
        assert decides.int().tolist() == [[0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0]]


def test_the_policy_gradient_at_the_output_layer_by_hand():
    """With untied embeddings d loss / d lm_head = sum over response tokens of
    -A / n (onehot(token) - softmax) x (state before the token): prompt tokens are no targets."""
    actor_critic = make_actor_critic(make_lm(std=0.1, tie=False))
    rollouts = two_turns(actor_critic, [5], [6, 7, 8])
    white = whiten(rollouts.advantages, rollouts.response_mask)
    expected = torch.zeros_like(actor_critic.lm.lm_head.weight)
    for n, response in enumerate(rollouts.responses[0]):
        ids = torch.tensor([response.prompt.ids + response.ids])
        states = actor_critic.lm.model(ids).last_hidden_state[0, 2:-1]
        softmax = actor_critic.lm.lm_head(states).softmax(-1)
        pull = F.one_hot(torch.tensor(response.ids), 260) - softmax
        weights = -white[0, n, : len(response.ids)] / 4  # four response tokens in all
        expected += (weights.unsqueeze(-1) * pull).T @ states
    gradient = gradient_of(make_agent(actor_critic), rollouts, [0, 1])["lm.lm_head.weight"]
    assert_close(gradient, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("token_budget", [1, 10**6])
def test_one_denominator_for_turns_of_very_different_lengths(token_budget):
    # 1 token and 39 tokens, in micro-batches of their own or in one: each token counts 1 / 40. A
    # mean over micro-batches would give the short turn's token half of the weight.
    actor_critic = make_actor_critic()
    agent = make_agent(actor_critic, minibatch=2, lr=0.0, critic_lr=0.0)
    rollouts = two_turns(actor_critic, [5], list(range(20, 59)))
    set_budget(rollouts, token_budget)
    rollouts.advantages = torch.zeros(1, 2, 39)
    rollouts.advantages[0, 0, 0] = 40.0
    # mean 1, variance (39^2 + 39) / 40 = 39: whitened 39 / 39^.5 and -1 / 39^.5
    white = whiten(rollouts.advantages, rollouts.response_mask)
    assert white[0, 0, 0].item() == pytest.approx(39**0.5)
    sums, _ = agent._minibatch(rollouts, white, [0, 1])
    assert sums["policy_loss"] / sums["tokens"] == pytest.approx(0.0, abs=1e-5)
    gradient = gradient_of(agent, rollouts, [0, 1])
    # by hand: -sum_i A_i log pi_i / 40, one row after the other through the model itself
    actor_critic.zero_grad(set_to_none=True)
    for n, response in enumerate(rollouts.responses[0]):
        ids = torch.tensor([response.prompt.ids + response.ids])
        logps = actor_critic.lm(ids).logits[0, 2:-1].log_softmax(-1)
        logps = logps[range(len(response.ids)), response.ids]
        (-(white[0, n, : len(response.ids)] * logps).sum() / 40).backward()
    for name, p in actor_critic.lm.named_parameters():
        assert_close(gradient[f"lm.{name}"], p.grad, atol=1e-6, rtol=1e-5, equal_nan=False)


# ---- values ---------------------------------------------------------------------------------


def test_the_first_token_weighs_3_and_the_weights_are_divided_by_their_sum():
    # V = 0 (a new head); returns 2 | 1 1 1, weights 3 | 3 1 1:
    # both turns   .5 (3 * 4 + 3 + 1 + 1) / (3 + 3 + 1 + 1) = 8.5 / 8
    # the first    .5 * 3 * 4 / 3 = 2            the second   .5 (3 + 1 + 1) / 5 = .5
    actor_critic = build(make_lm(), 1)
    rollouts = two_turns(actor_critic)
    rollouts.returns = torch.tensor([[[2.0, 0, 0], [1, 1, 1]]])
    agent = make_agent(actor_critic, minibatch=2, lr=0.0, critic_lr=0.0)
    assert update(agent, rollouts)["ppo/value_loss"] == pytest.approx(8.5 / 8)
    assert agent.fit_critic(rollouts, [0, 1]) == pytest.approx(8.5 / 8)
    assert agent.fit_critic(rollouts, [0]) == pytest.approx(2.0)
    assert agent.fit_critic(rollouts, [1]) == pytest.approx(0.5)
    # in minibatches of one turn the warm-up's figure is still the mean over all weights
    agent.settings.minibatch = 1
    assert agent.fit_critic(rollouts, [0, 1]) == pytest.approx(8.5 / 8)


@pytest.mark.parametrize("token_budget", [1, 10**6])
def test_the_value_gradient_by_hand(token_budget):
    # d loss / d bias of the head = sum w (V - G) / sum w, with V = 0:
    # -(3 * 2 + 3 * 1 + 1 + 1) / 8 = -11 / 8
    actor_critic = build(make_lm(), 1)
    rollouts = two_turns(actor_critic)
    set_budget(rollouts, token_budget)
    rollouts.returns = torch.tensor([[[2.0, 0, 0], [1, 1, 1]]])
    gradient = gradient_of(make_agent(actor_critic), rollouts, [0, 1])
    assert gradient["head.bias"].item() == pytest.approx(-11 / 8)


def test_value_clipping_is_off_and_on():
    # V has moved from .1 to 0 (a new head) and the return is -1: the step of .1 is cut at .02,
    # .1 - .02 = .08, and the larger of (0 + 1)^2 and (.08 + 1)^2 counts: .5 * 1.1664
    actor_critic = build(make_lm(), 1)
    for value_clip, expected in ((float("inf"), 0.5), (0.02, 0.5832)):
        rollouts = two_turns(actor_critic, [5], [6])
        rollouts.values, rollouts.returns = torch.full((1, 2, 1), 0.1), -torch.ones(1, 2, 1)
        agent = make_agent(actor_critic, minibatch=2, lr=0.0, critic_lr=0.0, value_clip=value_clip)
        assert update(agent, rollouts)["ppo/value_loss"] == pytest.approx(expected)


def test_the_entropy_bonus_raises_entropy():
    actor_critic = make_actor_critic()
    rollouts = score(fill_batch(), actor_critic)
    rollouts.advantages.zero_()
    before = update(make_agent(actor_critic, entropy_coef=1.0, lr=0.01), rollouts)["ppo/entropy"]
    after = update(make_agent(actor_critic, lr=0.0), rollouts)["ppo/entropy"]
    assert after > before


# ---- steps, minibatches, schedule -----------------------------------------------------------


def test_norms_of_gradients_are_on_the_device_of_the_parameters():
    """In the warm-up the actor has no gradient; torch cannot stack norms of two devices."""
    params = [torch.nn.Parameter(torch.zeros(2, device="meta"))]
    assert norm_of_gradients(params).device.type == "meta"
    params[0].grad = torch.zeros(2, device="meta")
    assert norm_of_gradients(params).device.type == "meta"
    with_one = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))]
    assert norm_of_gradients(with_one) == 0
    with_one[1].grad = torch.tensor([3.0, 4.0])
    assert norm_of_gradients(with_one) == 5


def test_a_non_finite_gradient_is_skipped_and_counted(capsys):
    actor_critic = make_actor_critic()
    agent = make_agent(actor_critic)
    before = snapshot(actor_critic)
    rollouts = score(fill_batch(), actor_critic)
    rollouts.returns[0, 0, 0] = float("nan")
    metrics = update(agent, rollouts)
    assert metrics["ppo/skipped_steps"] == 1
    assert "skipped" in capsys.readouterr().out
    after = snapshot(actor_critic)
    assert all(torch.equal(before[name], after[name]) for name in before)
    # nothing of it stays: the next update is that of a new agent
    metrics = update(agent, score(fill_batch(), actor_critic))
    assert metrics["ppo/skipped_steps"] == 1 and metrics["ppo/grad_norm"] > 0
    other = make_actor_critic()
    update(make_agent(other), score(fill_batch(), other))
    for (name, p), q in zip(actor_critic.named_parameters(), other.parameters(), strict=True):
        assert_close(p, q, atol=1e-6, rtol=0, msg=name)


def test_actor_and_critic_are_clipped_by_their_common_norm():
    # actor: 3 and 4 have norm 5, critic: 12; together 13, clipped to .65 = 13 / 20; .1 in all stays
    class Three(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.zeros(1) for _ in range(3))

        def actor_parameters(self) -> list:
            return list(self.parts)[:2]

        def critic_parameters(self) -> list:
            return list(self.parts)[2:]

    three = Three()
    agent = make_agent(three, max_grad_norm=0.65)
    seen = []
    agent.optimizer.step = lambda: seen.append([part.grad.item() for part in three.parts])
    for scale in (1, 0.01):
        for part, gradient in zip(three.parts, (3.0, 4.0, 12.0), strict=True):
            part.grad = torch.tensor([scale * gradient])
        # the norms before clipping are what is logged
        assert agent._step([], loss=0.0) == pytest.approx([5 * scale, 12 * scale])
        assert all(part.grad is None for part in three.parts)
    assert seen[0] == pytest.approx([0.15, 0.2, 0.6], rel=1e-4)
    assert seen[1] == pytest.approx([0.03, 0.04, 0.12], rel=1e-4)


def test_every_epoch_sees_every_turn_once_in_mixed_order(monkeypatch):
    actor_critic = make_actor_critic()
    agent = make_agent(actor_critic, minibatch=4, ppo_epoch=2, lr=0.0, critic_lr=0.0)
    rollouts = score(fill_batch(), actor_critic, minibatch=4)  # E = 3 turns of N = 4
    seen, minibatch = [], agent._minibatch
    monkeypatch.setattr(agent, "_minibatch", lambda *a: seen.append(a[2]) or minibatch(*a))
    update(agent, rollouts)
    assert [len(rows) for rows in seen] == [4] * 6
    first, second = seen[:3], seen[3:]
    for epoch in (first, second):
        assert sorted(sum(epoch, [])) == list(range(12))
    assert first != second
    # row t * 4 + n: a minibatch holds several times and several environments
    assert all(len({r // 4 for r in rows}) > 1 and len({r % 4 for r in rows}) > 1 for rows in first)


def test_the_shuffle_follows_its_generator():
    orders = []
    for seed in (0, 0, 1):
        agent = make_agent(make_actor_critic(), seed=seed, minibatch=4)
        batch = SimpleNamespace(layout=OnePerTurn())
        orders.append(agent.minibatches(batch, range(12)))
    assert orders[0] == orders[1] != orders[2]


def test_the_schedule_scales_both_learning_rates():
    agent = make_agent(make_actor_critic(), lr=0.4, critic_lr=0.8, lr_schedule="linear")

    def rates():
        return [group["lr"] for group in agent.optimizer.param_groups]

    agent.schedule_lr(0.5)
    assert rates() == [0.2, 0.4]
    agent.schedule_lr(0.75)  # a quarter of the base rates, not of the rates now
    assert rates() == [0.1, 0.2]
    agent.begin_warm_up(0.7)
    assert rates() == [0.0, 0.7]
    agent.end_warm_up()
    assert rates() == [0.4, 0.8]
    constant = make_agent(make_actor_critic(), lr=0.4, critic_lr=0.8)
    constant.schedule_lr(0.5)
    assert constant.optimizer.param_groups[0]["lr"] == 0.4


def test_every_parameter_has_one_learning_rate():
    actor_critic = make_actor_critic()
    agent = make_agent(actor_critic, lr=0.4, critic_lr=0.8)
    assert [group["lr"] for group in agent.optimizer.param_groups] == [0.4, 0.8]
    actor, critic = (group["params"] for group in agent.optimizer.param_groups)
    ids = [id(p) for p in actor + critic]
    assert len(set(ids)) == len(ids)
    assert set(ids) == {id(p) for p in actor_critic.parameters()}
    assert {id(p) for p in actor} == {id(p) for p in actor_critic.lm.parameters()}


def test_figures_of_values_are_those_of_first_tokens():
    actor_critic = build(make_lm(), 1)
    rollouts = two_turns(actor_critic)
    rollouts.values = torch.tensor([[[1.0, 0, 0], [3, 9, 9]]])
    rollouts.returns = torch.tensor([[[2.0, 0, 0], [6, 0, 0]]])
    metrics = update(make_agent(actor_critic, minibatch=2), rollouts)
    assert metrics["ppo/value_mean"] == 2.0 and metrics["ppo/return_mean"] == 4.0
    # residuals 1 and 3: variance 1; returns 2 and 6: variance 4; 1 - 1 / 4
    assert metrics["ppo/explained_variance"] == pytest.approx(0.75)
