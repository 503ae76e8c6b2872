"""The program as a whole, on small runs: what it leaves behind, seeds, resume, and collect."""

import itertools
import json
import math
import os
import random
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import make_collection, make_prompt, make_step
from real_runs import CLOCK, load_checkpoint
from small_envs import Flaky
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

import main
from arguments import get_args
from envs import make_env
from envs.pool.resilient import ResilientPool
from envs.pool.serial import EpisodeSeeds, training_seeds
from memory.window import WindowMemory
from ppo.engines.contract import Response
from ppo.evaluation import EvaluationEpisodes
from recipes import TINY
from run.saved import checkpoints
from storage.collection import at_faults
from storage.episodes import Episodes
from storage.schedules import at_time_limits

ROOT = Path(__file__).resolve().parents[1]
# 4 environments of 2 turns per update; an episode of the toy has 4 turns
PLAY = """--env-name toy --n-env 4 --response-limit 8 --eval-episodes 4 --prompt-limit 4096
--engine transformers"""
SMALL = f"""{PLAY} --e-len 2 --num-updates 2 --minibatch 4 --ppo-epoch 2
--w-epoch 1 --w-iter 2 --w-fraction 0.5 --w-lr 0.01 --lr 0.01 --critic-lr 0.01"""
KEYS = """update turns time/total time/processor time/collect time/score time/update time/push
rollout/success rollout/return rollout/episode_len rollout/valid_action rollout/response_tokens
rollout/truncated_responses rollout/prompt_overflow ppo/policy_loss ppo/value_loss ppo/approx_kl
ppo/clipfrac ppo/ratio_first_minibatch ppo/entropy ppo/grad_norm ppo/explained_variance kl/ref
kl/ref_think kl/ref_action engine/logp_gap_mean engine/logp_gap_p99"""


def train(run: Path, model: str, flags: str = "") -> Path:
    main.main(get_args([*SMALL.split(), "--model", model, "--run-dir", str(run), *flags.split()]))
    return run


def evaluate(run: Path, model: str, flags: str) -> Path:
    words = [*PLAY.split(), "--eval-only", "--model", model, "--run-dir", str(run), *flags.split()]
    main.main(get_args(words))
    return run


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def timeless(path: Path) -> list[dict]:
    """The records of a run without clock times."""
    return [{k: v for k, v in r.items() if not k.startswith(CLOCK)} for r in lines(path)]


@pytest.fixture(scope="module")
def program(model_dir, tmp_path_factory):
    """(run directory, standard output) of `python main.py`, a process of its own."""
    run = tmp_path_factory.mktemp("runs") / "toy"
    process = subprocess.run(
        [sys.executable, "main.py", "--model", model_dir, "--run-dir", run, *SMALL.split()],
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "%|" not in process.stderr  # progress bars are for terminals
    return run, process.stdout


@pytest.fixture(scope="module")
def run(program):
    return program[0]


# ---- what a run leaves behind ---------------------------------------------------------------


def test_a_run_prints_its_progress(program):
    run, output = program
    begins = [
        "loading libraries ...", "loading ", "starting the engine transformers ...", "toy, ",
        "  advantages dual-gae       n_env 4                   e_len 2",
        "  defaults of the embedded models: the model's hidden size is 32",
        "critic warm-up on 8 turns ...",
        "critic warm-up: held-out explained variance ", "evaluation on 4 episodes ...",
        "eval after 0 updates", "update    1/2", "update    2/2", "evaluation on 4 episodes ...",
        "eval after 2 updates", "trained model: ",
    ]  # fmt: skip
    there = iter(output.splitlines())
    assert all(any(line.startswith(begin) for line in there) for begin in begins), output
    [title] = [line for line in output.splitlines() if line.startswith("toy, ")]
    assert str(run) in title and "\r" not in output
    # each of 4 environments has ended one episode: too few for a mean
    for piece in ("update    1/2  success -  return -  length -  (4 episodes)  valid 0.00  ",
                  "update    2/2", "eval after 0 updates", "eval after 2 updates"):  # fmt: skip
        assert sum(line.startswith(piece) for line in output.splitlines()) == 1, output
    assert output.splitlines()[-1] == f"trained model: {run / 'model'}"


def test_the_files_of_a_run(run):
    files = {path.name for path in run.iterdir() if not path.name.startswith("events.")}
    assert files >= {"args.json", "metrics.jsonl", "eval.jsonl", "trajectories.jsonl"}
    assert files >= {"checkpoints", "model"}
    assert [path.name for path in checkpoints(run)] == ["update-000000", "update-000002"]


def test_args_json(run):
    described = json.loads((run / "args.json").read_text())
    assert described["args"]["env_name"] == "toy" and described["args"]["e_len"] == 2
    assert described["args"]["gamma_step"] == 0.99  # defaults too
    assert described["versions"].keys() >= {"python", "torch", "transformers", "gymnasium"}
    assert described["versions"]["torch"] == torch.__version__
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True
    )
    if commit.returncode == 0:  # not so in an unpacked archive
        assert described["git"].removesuffix("-dirty") == commit.stdout.strip()


def test_metrics_jsonl(run):
    first, second = lines(run / "metrics.jsonl")
    assert first.keys() == second.keys() >= set(KEYS.split())
    assert [first["update"], second["update"]] == [1, 2]
    # 4 environments x 2 turns per update; the 8 turns of the warm-up do not count
    assert [first["turns"], second["turns"]] == [8, 16]
    for name, value in (first | second).items():
        assert value is None or (math.isfinite(value) and not isinstance(value, bool)), name
    # the policy is still the reference, the engine has its weights, the first ratio is 1
    assert first["kl/ref"] == 0.0
    assert first["engine/logp_gap_mean"] < 1e-5
    assert first["ppo/ratio_first_minibatch"] == pytest.approx(1, abs=1e-4)
    assert second["ppo/ratio_first_minibatch"] == pytest.approx(1, abs=1e-4)
    # and then it has moved, and the engine with it
    assert abs(second["kl/ref"]) > 1e-4
    assert second["engine/logp_gap_mean"] < 1e-5
    assert first["rollout/valid_action"] == 0.0  # random letters
    assert first["rollout/episodes"] == 4 and first["rollout/return"] is None
    assert first["rollout/reward"] == pytest.approx(-0.1)  # a penalty each turn
    assert first["time/processor"] > 0
    assert first["time/total"] >= first["time/collect"] + first["time/score"] + first["time/update"]


def test_eval_jsonl(run):
    before, after = lines(run / "eval.jsonl")
    assert [before["update"], after["update"]] == [0, 2]
    for record in (before, after):
        assert record["eval/episodes"] == 4 and record["eval/episode_len"] == 4
        assert record["eval/success_low"] == record["eval/success"] == 0.0
        assert record["eval/success_high"] == pytest.approx(0.4899, abs=1e-4)  # 0 of 4, Wilson
        assert record["eval/return"] == pytest.approx(-0.4)


def test_warmup_jsonl(run):
    (record,) = lines(run / "warmup.jsonl")
    assert record["warmup/turns"] == 8
    # no episode of 4 turns ends in the 2 turns of the warm-up: nothing is claimed
    assert "warmup/explained_variance_held_out" not in record


def test_trajectories_jsonl(run):
    turns = lines(run / "trajectories.jsonl")
    # two environments; the warm-up and two updates of two turns, which are counted in their batch
    where = [(turn["update"], turn["env"], turn["turn"]) for turn in turns]
    assert where == [(update, n, t) for update in range(3) for n in range(2) for t in range(2)]
    for turn in turns:
        lengths = {len(turn[name]) for name in ("tokens", "logps", "values", "advantages", "kl")}
        assert len(lengths) == 1 and 1 <= lengths.pop() <= 8
        assert turn["prompt"].startswith("system: You are shown one colour")
        assert turn["prompt"].endswith("assistant: ")
        assert turn["observation"].startswith("The colour is")
        assert f"Current Observation:\n{turn['observation']}\n\n" in turn["prompt"]
        assert (turn["action"], turn["valid"], turn["reward"]) == ("pass", False, -0.1)
        assert turn["response_truncated"] == (turn["tokens"][-1] != "<end>")
    # the warm-up had turns 1 and 2 of each episode, update 1 has 3 and 4: the last one terminates
    assert [turn["terminated"] for turn in turns[:8]] == [False] * 5 + [True, False, True]
    assert [(turn["episode"], turn["step"]) for turn in turns[:10]] == [
        (0, 1), (0, 2), (0, 1), (0, 2), (0, 3), (0, 4), (0, 3), (0, 4), (1, 1), (1, 2)]  # fmt: skip
    for turn in turns[:4]:  # the actor of the warm-up is the reference
        assert set(turn["kl"]) == {0.0} and all(logp < 0 for logp in turn["logps"])
    seed = json.loads((run / "args.json").read_text())["args"]["seed"]
    for turn in turns:
        seeds = itertools.islice(EpisodeSeeds(seed, turn["env"]), turn["episode"], None)
        assert turn["seed"] == next(seeds)
        assert turn["fault"] == "" and 0 <= turn["action_at"] <= len(turn["response"])
    # memory length 1: an episode's first prompt shows no history, its second one turn
    assert "\nuser: Observation:" not in turns[8]["prompt"]
    assert turns[9]["prompt"].count("\nuser: Observation:") == 1
    assert f"{turns[8]['response'].strip()}\nACTION: pass\nuser: Current" in turns[9]["prompt"]


def test_the_glossary_explains_every_metric_that_a_run_writes(run):
    page = (ROOT / "docs" / "metrics.md").read_text()
    explained = set(re.findall(r"^\| `([\w/]+)` \|", page, re.M))
    written = {name for file in ("metrics", "eval", "warmup")
               for record in lines(run / f"{file}.jsonl") for name in record}  # fmt: skip
    assert written - explained == {"eval/right"}  # the toy's own, which stands there as rollout/...
    # vLLM alone has the first; in a warm-up of two turns no episode ends; and other environments'
    others = {f"rollout/{name}" for name in ("achievements", "wasted_guesses", "parse_failures",
              "untrained_calls", "ended_by_invalid_move", "program_errors",
                  "continued_turns")}  # fmt: skip
    assert explained - written - others == {
        "engine/push_gap", "warmup/explained_variance_trained",
        "warmup/explained_variance_held_out"}  # fmt: skip


def test_the_quickstart_explains_every_column(program):
    page = (ROOT / "docs" / "quickstart.md").read_text()
    columns = set(re.findall(r"^\| `([\w-]+)` \|", page, re.M))
    line = next(line for line in program[1].splitlines() if line.startswith("update    1/2"))
    words = set(re.findall(r"[a-z]+", line.removeprefix("update    1/2")))
    assert words == columns


def test_tensorboard_has_the_same_numbers(run):
    board = EventAccumulator(str(run)).Reload()
    for record in lines(run / "metrics.jsonl"):
        for name in ("ppo/value_loss", "rollout/episodes", "kl/ref"):
            logged = {event.step: event.value for event in board.Scalars(name)}
            assert logged[record["update"]] == pytest.approx(record[name], rel=1e-6)
    assert {event.step for event in board.Scalars("eval/success")} == {0, 2}
    tags = board.Tags()["scalars"]
    assert "kl/ref_action" not in tags  # null: nothing was ever an action
    assert "rollout/success" not in tags  # null: four episodes are too few


def test_the_model_loads_with_plain_transformers(run, model_dir):
    lm = AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text == "user: Hi\nassistant: "
    state = load_checkpoint(run)
    assert state["update"] == 2
    started = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    for name, p in lm.named_parameters():
        assert torch.equal(p, state["agent"]["stepper"]["actor_critic"][f"lm.{name}"]), name
        assert not torch.equal(p, started.get_parameter(name)), name  # it was trained


# ---- seeds, resume, evaluation --------------------------------------------------------------


def test_equal_seeds_give_equal_runs_and_others_do_not(run, model_dir, tmp_path, monkeypatch):
    evaluated = []
    keep = EvaluationEpisodes.keep_response

    def keep_response(episodes, n, response):
        evaluated.append(response.text)
        keep(episodes, n, response)

    monkeypatch.setattr(EvaluationEpisodes, "keep_response", keep_response)
    same = train(tmp_path / "same", model_dir)
    panels = [evaluated[:16]]  # 4 episodes of 4 turns before training
    for file in ("metrics.jsonl", "eval.jsonl", "warmup.jsonl"):
        assert timeless(same / file) == timeless(run / file)  # bit for bit
    for file in ("trajectories.jsonl", "model/model.safetensors"):
        assert (same / file).read_bytes() == (run / file).read_bytes()
    evaluated.clear()
    other = train(tmp_path / "other", model_dir, "--seed 2")
    panels.append(evaluated[:16])
    assert timeless(other / "metrics.jsonl")[0] != timeless(run / "metrics.jsonl")[0]
    spoken = [{turn["response"] for turn in lines(r / "trajectories.jsonl")} for r in (run, other)]
    assert not spoken[0] & spoken[1]
    # but the evaluation panel and its sampling noise are the same in every run
    assert panels[0] == panels[1] and len(panels[0]) == 16
    assert timeless(other / "eval.jsonl")[0] == timeless(run / "eval.jsonl")[0]


def test_evaluation_only(model_dir, tmp_path, capsys):
    run = evaluate(tmp_path / "run", model_dir, "--temperature 0 --eval-episodes 6")
    (record,) = lines(run / "eval.jsonl")
    assert record["eval/episodes"] == 6 and record["update"] == 0
    written = {path.name for path in run.iterdir() if not path.name.startswith("events.")}
    reports = {"eval.md", "eval_episodes.jsonl", "eval_trajectories.jsonl"}
    reports |= {"zero_shot.json", "zero_shot.md"}
    assert written == {"args.json", "eval.jsonl", "lock"} | reports
    assert "eval after 0 updates" in capsys.readouterr().out


def test_an_evaluation_does_not_depend_on_the_order_of_the_environments(model_dir, tmp_path):
    flags = "--eval-episodes 6"
    runs = [
        evaluate(tmp_path / "pair", model_dir, flags),
        evaluate(tmp_path / "three", model_dir, f"{flags} --n-env 3"),
        evaluate(tmp_path / "workers", model_dir, f"{flags} --env-workers 2"),
    ]
    for run in runs[1:]:
        assert timeless(run / "eval.jsonl") == timeless(runs[0] / "eval.jsonl")
        assert (run / "zero_shot.json").read_text() == (runs[0] / "zero_shot.json").read_text()


def test_the_zero_shot_report(model_dir, tmp_path, capsys):
    run = evaluate(tmp_path / "run", model_dir, "--eval-episodes 6")
    (record,) = lines(run / "eval.jsonl")
    check = json.loads((run / "zero_shot.json").read_text())
    # 6 episodes of 4 turns; random letters are no action, and the default is executed
    assert (check["episodes"], check["turns"]) == (6, 24)
    assert check["valid_action"] == record["eval/valid_action"] == 0
    assert check["actions"] == {"pass": 1.0}
    assert check["failures"]["invalid action"]["count"] == 24
    assert check["failures"]["terminated without success"]["count"] == 6
    assert 0 < check["thought_tokens_mean"] <= check["thought_tokens_p95"] <= 8
    example = check["failures"]["invalid action"]["example"]
    assert "The colour is" in example["observation"] and example["executed"] == "pass"
    output = capsys.readouterr().out
    assert "- invalid action: 24 of 24 turns (1.000)" in output and "## " not in output
    assert "## invalid action" in (run / "zero_shot.md").read_text()


def test_without_the_first_evaluation_a_run_is_the_same(run, model_dir, tmp_path):
    other = train(tmp_path / "other", model_dir, "--eval-interval 9")
    assert timeless(other / "eval.jsonl") == timeless(run / "eval.jsonl")[1:]
    assert timeless(other / "metrics.jsonl") == timeless(run / "metrics.jsonl")


def test_the_linear_schedule_and_proper_time_limits(model_dir, tmp_path):
    flags = "--lr-schedule linear --use-proper-time-limits --max-episode-steps 3 --w-epoch 0"
    run = train(tmp_path / "run", model_dir, flags)
    # 2 updates: lr (1 - 0 / 2), lr (1 - 1 / 2)
    rates = [record["ppo/lr"] for record in lines(run / "metrics.jsonl")]
    assert rates == [0.01, 0.005]
    assert not (run / "warmup.jsonl").exists()
    assert any(turn["truncated"] for turn in lines(run / "trajectories.jsonl"))


def test_babyai_with_a_worker_process(model_dir, tmp_path):
    flags = "--env-name babyai-goto --max-episode-steps 2 --env-workers 1 --eval-interval 0"
    model = str(TINY) if TINY.is_dir() else model_dir
    flags += " --num-updates 1 --w-epoch 0 --n-env 2 --eval-episodes 2"
    run = train(tmp_path / "run", model, flags)
    (record,) = lines(run / "metrics.jsonl")
    assert record.keys() >= set(KEYS.split())
    assert record["rollout/episodes"] == 2
    turns = lines(run / "trajectories.jsonl")
    # the default action of an invalid response is a step forward
    assert {turn["action"] for turn in turns if not turn["valid"]} <= {"go forward"}
    assert all("Your goal is to go to" in turn["prompt"] for turn in turns)
    assert not (run / "eval.jsonl").exists()  # an interval of 0: no evaluation at all


# ---- collect --------------------------------------------------------------------------------


class Continuous:
    """An engine that completes one response per step, in random order: nobody waits for others."""

    def __init__(self, seed):
        self.random, self.waiting, self.submitted = random.Random(seed), [], []

    @property
    def idle(self):
        return not self.waiting

    def submit(self, slot, prompt, seed):
        assert slot not in [other for other, _ in self.waiting], "a second prompt for a slot"
        self.waiting.append((slot, prompt))
        self.submitted.append((slot, prompt.ids))

    def step(self):
        if not self.waiting:
            return []
        slot, prompt = self.waiting.pop(self.random.randrange(len(self.waiting)))
        text = f"ACTION: {self.random.choice(('red', 'green', 'blue'))}"
        return [(slot, Response(prompt, [1, 0], [-1.0, -1.0], text, [text, ""], False))]


def render(messages, before=()):
    return make_prompt([ord(c) for c in json.dumps(messages)])


@pytest.mark.parametrize("seed", range(3))
def test_collect_gives_each_environment_exactly_e_turns_whatever_the_order(seed):
    N, E = 4, 3
    envs = ResilientPool(partial(make_env, "toy"), training_seeds(seed, range(N)))
    memories = [WindowMemory(1) for _ in range(N)]
    for memory, first in zip(memories, envs.reset(), strict=True):
        memory.reset(first)
    rollouts = make_collection(E, N)
    pending = [render(memory.messages()).ids for memory in memories]
    for batch in range(4):
        engine = Continuous(seed + batch)
        filled = main.collect(envs, memories, engine, render, rollouts, 0)
        assert rollouts.full and engine.idle and not envs.asked
        assert rollouts.counts == [E] * N
        assert not filled.final_prompts  # its episodes end, but by no time limit
        assert sorted(slot for slot, _ in engine.submitted) == sorted([*range(N)] * E)
        for n in range(N):
            prompts = [list(filled.responses[t][n].prompt.ids) for t in range(E)]
            # the batch begins with the prompt that the one before ended with, unanswered
            assert prompts[0] == pending[n]
            assert prompts == [ids for slot, ids in engine.submitted if slot == n]
            assert all(a != b for a, b in itertools.pairwise([*prompts, pending_of(rollouts, n)]))
            for t in range(E):
                action = filled.responses[t][n].text.removeprefix("ACTION: ")
                assert filled.steps[t][n].action == action
            pending[n] = pending_of(rollouts, n)
        rollouts.after_update(filled)
    # 4 batches of 3 turns are 3 episodes of 4 turns in each environment
    assert [episode.length for episode in rollouts.episodes.finished] == [4] * 3 * N


def test_collect_abandons_an_episode_that_cannot_be_replayed():
    """A program whose first request is untrained: the next episode's first turn has number 2."""
    kept = Episodes(1)
    kept.insert(0, make_step(reward=0.5, episode=3))
    resumed = Episodes(1)
    resumed.load_state_dict(kept.state_dict())
    resumed.insert(0, make_step(reward=1.0, terminated=True, success=True, episode=4, number=2))
    assert [(e.ret, e.length) for e in resumed.finished] == [(1.0, 1)]
    kept.insert(0, make_step(reward=1.0, terminated=True, episode=3, number=2))
    assert [(e.ret, e.length) for e in kept.finished] == [(1.5, 2)]


@pytest.mark.parametrize("proper", [False, True])
def test_collect_fills_a_batch_with_environments_that_fail(proper):
    N, E = 3, 4
    envs = ResilientPool(Flaky, training_seeds(0, range(N)), max_faults=1)
    memories = [WindowMemory(1) for _ in range(N)]
    for memory, first in zip(memories, envs.reset(), strict=True):
        memory.reset(first)
    rule = at_time_limits if proper else at_faults
    rollouts = make_collection(E, N, needs_bootstrap=rule)
    faults = 0
    for batch in range(4):
        engine = Continuous(batch)
        filled = main.collect(envs, memories, engine, render, rollouts, 0)
        assert rollouts.full and rollouts.counts == [E] * N
        for t, n in itertools.product(range(E), range(N)):
            step = filled.steps[t][n]
            faults += bool(step.fault)
            assert not step.fault or (step.truncated and step.reward == 0)
            # V is asked for what follows a fault, and what follows a time limit only if it counts
            wanted = step.truncated if proper else bool(step.fault)
            assert ((t, n) in filled.final_prompts) == wanted
        rollouts.after_update(filled)
    assert faults == len(envs.faults) > 0
    assert {episode.length for episode in rollouts.episodes.finished} == {2, 3}


def pending_of(rollouts, n):
    return rollouts.next_prompts[n].ids


def test_collect_keeps_the_prompt_of_a_time_limit():
    envs = ResilientPool(partial(make_env, "toy", max_episode_steps=2), [[0, 2, 4]])
    memory = WindowMemory(1)
    memory.reset(envs.reset()[0])
    rollouts = make_collection(3, 1, needs_bootstrap=at_time_limits)
    rollouts = main.collect(envs, [memory], Continuous(0), render, rollouts, 0)
    assert [turn[0].truncated for turn in rollouts.steps] == [False, True, False]
    # what the agent would have seen in turn 2: history and the final observation of the episode
    asked = json.loads("".join(map(chr, rollouts.final_prompts[1, 0].ids)))
    final = rollouts.steps[1][0].observation.text
    assert asked[1]["content"].startswith("Observation:\n") and final in asked[-1]["content"]
    # what it sees instead is the first observation of the next episode, without a history
    assert rollouts.final_prompts.keys() == {(1, 0)}
    asked = json.loads("".join(map(chr, rollouts.responses[2][0].prompt.ids)))
    assert [message["role"] for message in asked] == ["system", "user"]
    assert rollouts.steps[1][0].first.text in asked[1]["content"]


# ---- other ways to train ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        "--train lora:2",
        "--dtype bfloat16 --rows packed --gradient-checkpointing",
        "--tis-cap 2",
        "--offload reference",
        "--kl-coef 0",
    ],
)
def test_other_ways_to_train(flags, run, model_dir, tmp_path):
    other = train(tmp_path / "run", model_dir, flags)
    for theirs, ours in zip(
        lines(run / "metrics.jsonl"), lines(other / "metrics.jsonl"), strict=True
    ):
        assert theirs.keys() == ours.keys()
        assert all(math.isfinite(value) for value in ours.values() if value is not None)
    first, plain = lines(other / "metrics.jsonl")[0], lines(run / "metrics.jsonl")[0]
    assert first["ppo/ratio_first_minibatch"] == pytest.approx(1, abs=1e-3)
    assert first["kl/ref"] == (None if "kl-coef" in flags else pytest.approx(0, abs=1e-3))
    assert (first["engine/logp_gap_mean"] is None) == ("tis" in flags)  # no gap to itself
    if "bfloat16" not in flags:  # the same policy to begin with, and the same turns
        assert first["rollout/response_tokens"] == plain["rollout/response_tokens"]
        assert first["ppo/value_mean"] == pytest.approx(plain["ppo/value_mean"], rel=1e-3)
    adapter = other / "model" / "adapter" / "adapter_model.safetensors"
    assert adapter.exists() == ("lora" in flags)


def test_a_run_with_adapters_goes_on_from_them(model_dir, tmp_path):
    run = train(tmp_path / "run", model_dir, "--train lora:2 --num-updates 1")
    state = load_checkpoint(run)["agent"]["stepper"]["actor_critic"]
    assert all("lora_" in name for name in state if name.startswith("lm."))
    main.main(get_args(["--resume", str(run), "--num-updates", "2"]))
    straight = train(tmp_path / "straight", model_dir, "--train lora:2")

    def drop_times(record):
        return {k: v for k, v in record.items() if not k.startswith(CLOCK)}

    resumed, expected = (lines(path / "metrics.jsonl") for path in (run, straight))
    assert [drop_times(m) for m in resumed] == [drop_times(m) for m in expected]
