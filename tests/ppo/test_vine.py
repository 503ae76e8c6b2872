"""Values by continuations: advantages and costs by hand, exact branches, resume, and refusals."""

import json
import shutil
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from conftest import make_prompt, make_step
from small_envs import Dice, Moody
from torch.testing import assert_close

import branch
import main
from arguments import get_args
from branch import Branches
from common.plugins import UserError
from envs.pool.resilient import ResilientPool
from envs.pool.serial import training_seeds
from memory import make_memories
from ppo.advantages import Batch
from ppo.advantages.vine import vine
from ppo.continuations import Start
from ppo.engines.contract import Response
from ppo.vine import State, ValuedCollection, sampled_values
from recipes import TINY
from run.saved import checkpoints
from storage.batch import Scoring
from storage.collection import Collection, FixedTurns, Turn
from storage.schedules import never
from storage.valued import ValuedBatch

WINDOW = SimpleNamespace(
    env_name="dice", memory="window", memory_length=1, history_thinking="keep"
)  # fmt: skip


class Scripted:
    """An engine that ends an episode of the batch in its second turn, and never a continuation."""

    def __init__(self):
        self.waiting = []

    @property
    def idle(self):
        return not self.waiting

    def submit(self, slot, prompt, seed):
        _, _, turns, member = seed
        text = "end" if (turns, member) == (1, 0) else "go"
        self.waiting.append((slot, Response(prompt, [1, 0], [-1.0, -1.0], text, [text, ""], False)))

    def step(self):
        done, self.waiting = self.waiting, []
        return done


def render(messages, before=()):
    """Write the prompt and the ids that it may continue, so that both must be those of before."""
    return make_prompt([*before, *map(ord, json.dumps(messages))])


def collector(env=Dice, N: int = 2, E: int = 3, K: int = 2):
    """Return a function that collects a batch with K continuations of each state."""
    envs = ResilientPool(env, training_seeds(1, range(N)), max_faults=1)
    memories, engine = make_memories(WINDOW, envs.resume(None)), Scripted()
    rollouts = Collection(
        N, FixedTurns(E), Scoring(), needs_bootstrap=never, make_batch=ValuedBatch
    )
    args = SimpleNamespace(environment=WINDOW, generation=None, seed=7)
    own = ResilientPool(env, [[], [], []], proven=True)  # three at a time
    branches = Branches(args, own, engine, render, main.collect)
    rollouts = ValuedCollection(rollouts, envs, branches, K, gamma=0.5, group_size=0)
    return lambda: main.collect(envs, memories, engine, render, rollouts, 7), rollouts


def test_advantages_and_costs_by_hand():
    """A turn pays .5 and an episode has 3 turns, or 2 where the batch says "end"."""
    collect, rollouts = collector()
    # gamma = .5: V is .5 before turn 3, .5 + .25 before turn 2, .5 + .375 before turn 1
    first, second, cut = 0.875, 0.75, 0.75
    # turn 1 of an episode: .5 + .5 V(s_2) - V(s_1) = 0;  "end": .5 - V(s_2) = -.25
    # batch 1: turns 1 and 2 of an episode, turn 1 of the next, which the batch cuts
    batch = collect()
    batch.compute_returns(estimate)
    assert_close(batch.values[:, 0, 0], torch.tensor([first, second, first]))
    assert_close(batch.next_values()[:, 0], torch.tensor([second, 0.0, cut]))
    assert_close(batch.advantages[:, 1], torch.tensor([[0.0, 0], [-0.25, -0.25], [0, 0]]))
    # from the states, and from the cut: 3 + 2 + 3 + 2 turns, twice, in each of 2 environments
    assert batch.costs["rollout/continued_turns"] == 40 == rollouts.episodes.turns
    assert batch.costs["rollout/continued_response_tokens"] == 80
    rollouts.after_update(batch)
    assert rollouts.episodes.turns == 40 + 6
    # batch 2: turn 2 of the episode that was cut, then turns 1 and 2 of another
    batch = collect()
    batch.compute_returns(estimate)
    assert_close(batch.values[:, 1, 0], torch.tensor([second, first, second]))
    assert_close(batch.advantages[:, 0, 0], torch.tensor([-0.25, 0, -0.25]))
    assert rollouts.episodes.turns == 46 + (2 + 3 + 2) * 4


def estimate(**turns):
    discounts = dict(lam_step=0.0, gamma_token=1.0, lam_token=1.0)
    return vine(Batch(**turns, gamma_step=0.5, **discounts))


def test_each_continuation_has_noise_of_its_own(monkeypatch):
    collect, rollouts = collector(N=1)
    seeds, submit = Counter(), Scripted.submit

    def noted(engine, slot, prompt, seed):
        seeds[seed] += 1
        submit(engine, slot, prompt, seed)

    monkeypatch.setattr(Scripted, "submit", noted)
    collect()
    assert set(seeds.values()) == {1} and len(seeds) == 3 + 20


def test_a_state_that_cannot_be_reached_again_is_one_line():
    collect, _ = collector(env=Moody)
    with pytest.raises(UserError, match="played again, shows another prompt at turn 1: the env"):
        collect()


def test_faults_and_lost_continuations():
    def states(*returns):
        return [State(Start(2, {}), [1], list(each)) for each in returns]

    def turns(*steps):
        return [Turn(None, make_step(**step)) for step in steps]

    going = dict(reward=1.0, terminated=False, truncated=False)
    limit, fault = going | dict(truncated=True), dict(truncated=True, reward=0.0, fault="lost")
    # a time limit is an end: nothing follows
    assert sampled_values(turns(going, limit), states([4, 2], [2]), 0.5) == [(3, 2), (2, 0)]
    # after a fault V before stands for the rest
    assert sampled_values(turns(fault), states([3]), 0.5) == [(3, 3)]
    # no continuation is left of the second state: 1 + .5 * 4, from the value at the cut
    assert sampled_values(turns(going, going), states([5], [], [4]), 0.5) == [(5, 3), (3, 4)]
    # none at the cut
    assert sampled_values(turns(going), states([5], []), 0.5) == [(5, 5)]
    # neither before a fault nor after it: the turn's advantage is 0, and it says nothing of the
    # state before; the next episode (7) never does
    lost = [(5, 5), (0, 0), (7, 4)]
    assert sampled_values(turns(going, fault, going), states([5], [], [7], [4]), 0.5) == lost
    assert sampled_values(turns(going, fault), states([5], []), 0.5) == lost[:2]
    # neither before a turn nor at the cut
    assert sampled_values(turns(going, going), states([5], [], []), 0.5) == [(5, 5), (1, 0)]


# ---- the program --------------------------------------------------------------------------------

SMALL = f"""--env-name toy --model {TINY} --engine transformers --n-env 2 --e-len 3 --minibatch 6
--num-updates 2 --save-interval 1 --eval-interval 3 --eval-episodes 2 --memory full
--response-limit 6 --advantages vine:2"""
CLOCK = ("time/", "engine/")


def train(folder, flags: str = ""):
    assert main.main(get_args([*SMALL.split(), *flags.split(), "--run-dir", str(folder)])) == 0
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.startswith(CLOCK)} for r in records]


def test_a_resumed_run_is_the_run_that_was_interrupted(tmp_path):
    whole = train(tmp_path / "run")
    weights = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    continued = sum(record["rollout/continued_turns"] for record in whole)
    assert len(whole) == 2 and whole[-1]["turns"] == 2 * 6 + continued
    assert whole[0]["ppo/value_mean"] is not None and whole[0]["ppo/value_loss"] is None
    shutil.rmtree(checkpoints(tmp_path / "run")[-1])
    shutil.rmtree(tmp_path / "run" / "model")
    assert main.main(get_args(["--resume", str(tmp_path / "run")])) == 0
    records = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    again = [{k: v for k, v in json.loads(r).items() if not k.startswith(CLOCK)} for r in records]
    assert again == whole
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("vine:0", "'vine:0' is not of the form vine:K, with K of 1 or more"),
        ("vine:all", "'vine:all' is not of the form vine:K, with K of 1 or more"),
        ("vine --lam-step 0.9", "--advantages vine has no --lam-step; leave it out"),
        ("vine:4 --w-epoch 1", "there is nothing for --w-epoch to set; leave it out"),
        ("vine --env-name agent:m:f", "--advantages vine plays each state on several times"),
    ],
)
def test_what_does_not_go_together_is_one_line(flags, line, capsys):
    with pytest.raises(SystemExit):
        get_args(["--advantages", *flags.split()])
    assert line in capsys.readouterr().err.splitlines()[-1]


def test_an_environment_that_says_it_cannot_be_replayed_is_refused():
    args = SimpleNamespace(
        update=SimpleNamespace(continuations=9), advantages="vine", env_name="module:Env",
        eval_only=False,
    )  # fmt: skip
    envs = SimpleNamespace(n_env=1, observation=lambda n: SimpleNamespace(replayable=False))
    with pytest.raises(UserError, match="and module:Env says that equal responses"):
        branch.with_values(args, None, None, envs, None, None, None)
