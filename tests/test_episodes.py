"""Batches of whole episodes: who begins when, what is held, and that missing turns do not count."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
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
from real_runs import CLOCK, run
from small_envs import Dice, Flaky
from torch.testing import assert_close

import main
from arguments import get_args
from envs.errors import Fault
from envs.pool import faults
from envs.pool.groups import group_seeds
from envs.pool.resilient import ResilientPool
from envs.pool.serial import training_seeds
from memory.window import WindowMemory
from ppo.agent import Agent
from ppo.criticless import CriticlessAgent
from ppo.engines.contract import Response
from ppo.kl import KLPenalty, k3
from ppo.model.actor_critic import Reference
from ppo.model.make import build
from ppo.terms import KLInLoss, terms_of
from recipes import TINY
from reports import viewer
from run.figures import batch_figures, update_figures
from run.saved import checkpoints
from storage.batch import Batch
from storage.schedules import never

ROOT = Path(__file__).resolve().parents[1]


# ---- collect ------------------------------------------------------------------------------------


class Shuffled:
    """An engine that completes one response per step, in random order. What it says, "end" or "go",
    depends on the noise alone."""

    def __init__(self, seed):
        self.random, self.waiting = random.Random(seed), []

    @property
    def idle(self):
        return not self.waiting

    def submit(self, slot, prompt, seed):
        text = "end" if np.random.default_rng(seed).random() < 0.4 else "go"
        self.waiting.append((slot, prompt, text))

    def step(self):
        if not self.waiting:
            return []
        slot, prompt, text = self.waiting.pop(self.random.randrange(len(self.waiting)))
        return [(slot, Response(prompt, [1, 0], [-1.0, -1.0], text, [text, ""], False))]


def render(messages, before=()):
    return make_prompt([ord(c) for c in json.dumps(messages)])


def collected(order: int, G: int = 3, N: int = 6, least: int = 4, env=Dice, batches: int = 3,
              pool=ResilientPool):  # fmt: skip
    """Some batches of whole episodes, as (seed, number, response, observation) of each turn."""
    envs = pool(env, group_seeds(1, range(N), G), max_faults=1)
    memories = [WindowMemory(1) for _ in range(N)]
    for memory, first in zip(memories, envs.reset(), strict=True):
        memory.reset(first)
    rollouts = make_collection(least, N, group_size=G, critic=False, needs_bootstrap=never)
    for batch in range(batches):
        engine = Shuffled(order + 100 * batch)
        filled = main.collect(envs, memories, engine, render, rollouts, 7)
        assert len(filled.rows) == sum(rollouts.counts)
        yield filled
        rollouts.after_update(filled)
    envs.close()


@pytest.mark.parametrize("order", range(3))
def test_a_batch_is_whole_episodes_in_groups(order):
    total, G = 0, 3
    for rollouts in collected(order, G):
        columns = [[s for s in column if s] for column in zip(*rollouts.steps, strict=True)]
        assert len(rollouts.rows) == sum(map(len, columns))
        assert rollouts.e_len == max(map(len, columns))
        for steps in columns:
            assert steps[0].number == 1 and steps[-1].done
        for first in (0, 3):
            group = columns[first : first + G]
            begun = [[step.seed for step in steps if step.number == 1] for steps in group]
            assert begun[0] == begun[1] == begun[2]  # the same episodes, each as often
            assert all(seed % 2 == 0 for seed in begun[0])  # the panel's are odd
            assert sum(map(len, group)) >= G * 4
            # without its last episodes the group would have had too few turns
            before = [sum(s.seed != begun[0][-1] for s in steps) for steps in group]
            assert sum(before) < G * 4
        assert {s.seed for s in columns[0]}.isdisjoint(s.seed for s in columns[3])
        total += len(rollouts.rows)
        assert rollouts.episodes.turns == total - len(rollouts.rows)
    assert rollouts.episodes.turns == total


def test_a_batch_does_not_depend_on_the_order_of_answers():
    def turns(rollouts):
        return [
            [(s.seed, s.number, s.response, s.previous_digest) if s else None for s in turn]
            for turn in rollouts.steps
        ]

    one, other = ([turns(rollouts) for rollouts in collected(order)] for order in (0, 1))
    assert one == other
    # members of a group begin alike and have noise of their own
    responses = [[turn[n][2] for turn in one[0] if turn[n]] for n in range(3)]
    assert len({tuple(texts) for texts in responses}) > 1


def test_a_group_of_one_is_an_environment_that_plays_whole_episodes():
    for rollouts in collected(0, G=1):
        for column in zip(*rollouts.steps, strict=True):
            steps = [step for step in column if step]
            assert steps[-1].done and len(steps) >= 4
            assert len([s for s in steps if s.seed != steps[-1].seed]) < 4


def test_faults_are_kept_and_compared_with_no_other_episode():
    from ppo.advantages.compared import groups_of

    faults = 0
    for rollouts in collected(0, env=Flaky, batches=4):
        groups = groups_of(rollouts.steps)
        for row in rollouts.rows:
            t, n = divmod(row, 6)
            step = rollouts.steps[t][n]
            if step.fault:
                faults += 1
                same = (groups == groups[t, n]).nonzero().tolist()
                assert groups[t, n] < 0 and {place[1] for place in same} == {n}
                assert len(same) == step.number  # the turns of the episode that it cut
        assert not rollouts.final_prompts  # no value is asked for
    assert faults


class Outage(ResilientPool):
    """Environment 1 cannot begin its second episode for a while. fails: how often it fails"""

    fails = 0

    def _answered(self, i, answer):
        if self.fails and (i, self.cursors[i].episode, self.cursors[i].played) == (1, 1, None):
            self.fails, answer = self.fails - 1, Fault("no connection")
        super()._answered(i, answer)


@pytest.mark.parametrize("fails", [3, 8])
def test_a_group_stays_together_when_an_episode_of_one_cannot_begin(fails, monkeypatch):
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(Outage, "fails", fails)
    begun = [[] for _ in range(3)]
    for rollouts in collected(0, pool=Outage):
        for n in range(3):
            column = [turn[n] for turn in rollouts.steps if turn[n]]
            begun[n] += [step.seed for step in column if step.number == 1]
    assert begun[0] == begun[2] and len(begun[0]) > 3
    # after eight tries another episode takes the place of this one, and the rest is as before
    apart = [k for k in range(len(begun[0])) if begun[1][k] != begun[0][k]]
    assert apart == ([1] if fails == 8 else [])
    assert len(begun[1]) == len(set(begun[1])) == len(begun[0])


def test_seeds_of_groups_are_those_of_their_first_episodes():
    alone = [next(iter(seeds)) for seeds in training_seeds(3, range(4, 6))]
    grouped = [next(iter(seeds)) for seeds in group_seeds(3, range(8, 12), 2)]
    assert grouped == [alone[0]] * 2 + [alone[1]] * 2


# ---- nothing counts missing turns ---------------------------------------------------------------


def ragged_and_flat(actor_critic) -> tuple[Batch, Batch]:
    """The same five turns: in two environments that have four and one, and in five environments."""
    flat = fill_batch(E=1, N=5, seed=3)
    ragged = make_collection(1, 2, group_size=2)
    for k, (response, step) in enumerate(flat.played.values()):
        n = int(k == 4)
        ragged.keep_response(n, response)
        ragged.insert(n, make_step(reward=step.reward, terminated=k >= 3, number=1 + k))
    for n in range(2):
        ragged.finish(n, make_prompt([3]))
    ragged = ragged.join()
    g = torch.Generator().manual_seed(0)
    numbers = torch.randn(2, 5, 1, generator=g)
    # rows go from turn to turn: the fifth of the turns is the first one of environment 1
    for rollouts, order in ((ragged, [0, 4, 1, 2, 3]), (flat, [0, 1, 2, 3, 4])):
        rollouts.score(actor_critic, Reference(make_lm(seed=5)), [list(rollouts.rows)])
        rollouts.advantages = torch.zeros_like(rollouts.values)
        rollouts.returns = torch.zeros_like(rollouts.values)
        mask = rollouts.response_mask.flatten(0, 1)[rollouts.rows]
        rollouts.advantages.flatten(0, 1)[rollouts.rows] = numbers[0, order] * mask
        rollouts.returns.flatten(0, 1)[rollouts.rows] = numbers[1, order] * mask
    return ragged, flat


def figures_of_an_update(agent, rollouts):
    plan = agent.plan(rollouts)
    made = agent.update(rollouts, plan)
    return batch_figures(rollouts) | made | update_figures(rollouts, plan)


def make_agent(actor_critic, terms=(), make=Agent, **options):
    settings = make_settings(
        lr=1e-2, critic_lr=1e-2, value_clip=0.5, entropy_coef=0.01, minibatch=5, **options
    )
    generator = torch.Generator().manual_seed(0)
    return make(settings, actor_critic, generator, terms=terms)


def test_an_update_and_its_metrics_leave_out_missing_turns():
    results = []
    for k in range(2):
        actor_critic = build(make_lm(std=0.1), 1)
        torch.nn.init.normal_(actor_critic.head.weight, generator=torch.Generator().manual_seed(1))
        rollouts = ragged_and_flat(actor_critic)[k]
        assert len(rollouts.rows) == 5
        agent = make_agent(actor_critic)
        agent._minibatch(rollouts, rollouts.advantages, rollouts.rows)
        named = actor_critic.named_parameters()
        gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
        actor_critic.zero_grad()
        results.append((figures_of_an_update(agent, rollouts), gradients))
    (ragged, gradients), (flat, expected) = results
    assert_close(gradients, expected, atol=1e-6, rtol=0)
    of_episodes = ("rollout/episodes", "rollout/first_under_way", "batch/")  # they end elsewhere
    for name, value in flat.items():
        if not name.startswith(of_episodes):
            assert ragged[name] == pytest.approx(value, abs=1e-5), name


# ---- no critic, and the KL in the loss ----------------------------------------------------------


def test_without_a_critic_there_are_no_values_and_no_critic_metrics():
    lm = make_lm(std=0.1)
    actor_critic = build(lm, None)
    assert actor_critic.critic_parameters() == []
    assert sum(p.numel() for p in actor_critic.parameters()) == sum(
        p.numel() for p in lm.parameters()
    )
    agent = make_agent(actor_critic, make=CriticlessAgent, whiten=False)
    assert len(agent.optimizer.param_groups) == 1
    rollouts = make_collection(1, 2, group_size=2, critic=False)
    for n in range(2):
        rollouts.keep_response(n, make_response([9, n], [5, 6]))
        rollouts.insert(n, make_step(reward=float(n), terminated=True))
        rollouts.finish(n, make_prompt([3]))
    rollouts = rollouts.join()
    rollouts.score(actor_critic, Reference(lm), [list(rollouts.rows)])
    assert rollouts.values is None
    seen = {}
    rollouts.compute_returns(lambda **turns: (seen.update(turns), (turns["rewards"], None))[1])
    assert seen["values"] is None and seen["next_values"] is None
    before = torch.cat([p.detach().flatten().clone() for p in actor_critic.parameters()])
    figures = figures_of_an_update(agent, rollouts)
    of_critics = (
        "value_loss",
        "grad_norm_critic",
        "explained_variance",
        "value_mean",
        "return_mean",
    )
    assert [figures[f"ppo/{name}"] for name in of_critics] == [None] * 5
    assert figures["ppo/grad_norm"] == figures["ppo/grad_norm_actor"] > 0
    after = torch.cat([p.detach().flatten() for p in actor_critic.parameters()])
    assert not torch.equal(before, after)


def test_the_kl_as_a_term_of_the_loss():
    """The gradient with it is the one without it plus that of beta times the mean of k3."""
    actor_critic = build(make_lm(std=0.1), 1)
    rollouts, _ = ragged_and_flat(actor_critic)
    gradients = []
    in_loss, in_reward = KLInLoss(0.3, "k3", None), KLPenalty(0.3, "k3", None)
    for kl in (None, in_loss, in_reward):
        agent = make_agent(actor_critic, terms_of(kl))
        agent._minibatch(rollouts, rollouts.advantages, rollouts.rows)
        gradients.append(actor_critic.lm.lm_head.weight.grad.clone())
        actor_critic.zero_grad()
    (batch,) = rollouts.micro_batches(rollouts.rows)
    logps = actor_critic(batch).logps
    (0.3 * k3(logps, rollouts.take(rollouts.ref_logps, batch.rows)).mean()).backward()
    term = actor_critic.lm.lm_head.weight.grad
    assert term.abs().max() > 1e-3
    assert_close(gradients[1], gradients[0] + term, atol=1e-6, rtol=0)
    assert_close(gradients[2], gradients[0])  # the one in the reward is no term
    rewards = rollouts.rewards.clone()
    rollouts.penalise_kl(in_loss)
    assert torch.equal(rollouts.rewards, rewards)


# ---- the program --------------------------------------------------------------------------------

SMALL = f"""--env-name babyai-goto --model {TINY} --engine transformers --n-env 4 --group-size 2
--max-episode-steps 6 --e-len 5 --num-updates 3 --minibatch 8 --save-interval 1
--eval-interval 4 --eval-episodes 4"""
METHODS = ["rloo", "grpo --kl-target 0.1", "gigpo", "turn-gae --w-epoch 1 --w-iter 1"]


def train(run: Path, flags: str) -> Path:
    words = [*SMALL.split(), "--advantages", *flags.split(), "--run-dir", str(run)]
    assert main.main(get_args(words)) == 0
    return run


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def outcome(run: Path) -> dict:
    logs = {}
    for name in ("metrics.jsonl", "eval.jsonl", "trajectories.jsonl"):
        logs[name] = [
            {k: v for k, v in record.items() if not k.startswith(CLOCK)}
            for record in lines(run / name)
        ]
    return logs | {"weights": (run / "model" / "model.safetensors").read_bytes()}


@pytest.mark.parametrize("flags", METHODS)
def test_a_run_of_whole_episodes_and_its_resume(flags, tmp_path, capsys):
    run = train(tmp_path / "run", flags)
    whole, metrics = outcome(run), lines(run / "metrics.jsonl")
    turns = [record["turns"] for record in metrics]
    steps = [b - a for a, b in zip([0, *turns], turns, strict=False)]
    assert all(20 <= step <= 4 * 12 for step in steps) and len(set(steps)) > 1
    critic = "turn" in flags
    if (
        "--kl-target 0.1" in flags
    ):  # beta moves after each batch, by at most a fifth in 10,000 turns
        for record, later, count in zip(metrics, metrics[1:], steps, strict=False):
            error = min(max(record["kl/ref"] / 0.1 - 1, -0.2), 0.2)
            wanted = record["kl/coef"] * (1 + error * count / 10_000)
            assert later["kl/coef"] == pytest.approx(wanted, rel=1e-6) != record["kl/coef"]
    for record in metrics:
        assert (record["ppo/value_loss"] is None) == (not critic)
        assert (record["ppo/explained_variance"] is None) == (not critic)
        assert record["ppo/ratio_first_minibatch"] == pytest.approx(1, abs=1e-3)
    assert (run / "warmup.jsonl").exists() == critic
    records = lines(run / "trajectories.jsonl")
    assert all((record["values"][0] is None) == (not critic) for record in records)
    ends = [(r["terminated"] or r["truncated"]) for r in records]
    assert ends[-1] and sum(ends) == sum(record["step"] == 1 for record in records)
    assert viewer.main([str(run)]) == 0 and viewer.main([str(run), "--env", "1"]) == 0
    capsys.readouterr()
    for path in checkpoints(run)[2:]:  # as if it was killed in the second update
        shutil.rmtree(path)
    shutil.rmtree(run / "model")
    assert main.main(get_args(["--resume", str(run)])) == 0
    assert outcome(run) == whole


def test_a_run_ends_with_its_turns(tmp_path, capsys):
    run = train(tmp_path / "run", "rloo --num-turns 21 --num-updates 9 --eval-interval 10")
    turns = [record["turns"] for record in lines(run / "metrics.jsonl")]
    assert turns[-1] >= 21 and all(t < 21 for t in turns[:-1])
    assert [record["update"] for record in lines(run / "eval.jsonl")] == [len(turns)]
    assert main.main(get_args(["--resume", str(run)])) == 0
    assert "is finished: all 9 updates or 21 turns are made" in capsys.readouterr().out
    assert len(lines(run / "metrics.jsonl")) == len(turns)


def test_two_ranks_play_and_learn_like_one_process(tmp_path):
    # Small steps: Adam makes whole ones of gradients that only rounding keeps from 0, and then
    # other tokens are sampled. With seed 1 rounding alone gives another in the second update.
    flags = "vine:1 --env-name toy --num-updates 2 --seed 2 --lr 1e-6"
    one = train(tmp_path / "one", flags)
    words = [*SMALL.split(), "--advantages", *flags.split(), "--run-dir", str(tmp_path / "two")]
    process = run(["main.py", *words], ranks=2)
    assert process.returncode == 0, process.stderr[-3000:]
    for file in ("metrics.jsonl", "eval.jsonl"):
        ours, theirs = lines(tmp_path / "two" / file), lines(one / file)
        assert len(ours) == len(theirs) > 0
        for mine, other in zip(ours, theirs, strict=True):
            same = [k for k, v in other.items() if v is not None and k[:5] != "time/"]
            same = [name for name in same if name[:7] != "engine/"]
            wanted = pytest.approx([other[k] for k in same], abs=2e-3, rel=1e-3)
            assert [mine[k] for k in same] == wanted, same
