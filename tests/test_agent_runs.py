"""Whole runs on agent programs: what is trained is what was asked and sampled, each response at its
own temperature, and a run that was interrupted goes on."""

import json
import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_runs import CLOCK, launch, load_checkpoint, wait_for
from transformers import AutoTokenizer

import main
from arguments import get_args
from memory.render import Prompt, Renderer
from ppo.engines.contract import Engine
from recipes import TINY
from run.saved import checkpoints
from storage.batch import Batch

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # agent_programs.py
SMALL = """--n-env 4 --e-len 2 --num-updates 3 --minibatch 4 --ppo-epoch 2 --w-epoch 1 --w-iter 1
--w-fraction 1 --lr 0.01 --critic-lr 0.01 --response-limit 6 --prompt-limit 4096 --save-interval 1
--eval-interval 4 --eval-episodes 4 --critic-layers 1 --log-envs 4 --env-workers 0"""


def train(run: Path, program: str, flags: str) -> list[dict]:
    """Train on a program of agents.py; returns the records of the updates."""
    words = [*SMALL.split(), "--env-name", f"agent:agent_programs:{program}", "--run-dir", str(run)]
    assert main.main(get_args([*words, *flags.split()])) == 0
    return records(run, "metrics.jsonl")


def records(run: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def outcome(run: Path, without=CLOCK) -> dict:
    """All that a run computed, without clock times."""
    logs = {}
    for name in ("metrics.jsonl", "eval.jsonl", "warmup.jsonl", "trajectories.jsonl"):
        known = records(run, name)
        logs[name] = [{k: v for k, v in r.items() if not k.startswith(without)} for r in known]
    return logs | {"weights": (run / "model" / "model.safetensors").read_bytes()}


# ---- what is trained ----------------------------------------------------------------------------

ENGINES = [
    "transformers",
    pytest.param("vllm", marks=pytest.mark.skipif(not find_spec("vllm"), reason="no vLLM")),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_response_is_trained_at_its_own_temperature(engine, model_dir, tmp_path, monkeypatch):
    model = model_dir if engine == "transformers" else str(TINY)
    batches, collect = [], main.collect

    def collected(envs, memories, engine, render, rollouts, *others):
        batch = collect(envs, memories, engine, render, rollouts, *others)
        if isinstance(batch, Batch):  # not an evaluation's
            batches.append((batch.responses, batch.steps))
        return batch

    monkeypatch.setattr(main, "collect", collected)
    flags = f"--model {model} --engine {engine} --temperature 0.8 --eval-interval 0"
    lines = train(tmp_path / "run", "tempered", flags)
    for line in lines:
        # the policy that is trained gives what was sampled the probability that it was sampled with
        assert line["ppo/ratio_first_minibatch"] == pytest.approx(1, abs=1e-6)
        assert line["engine/logp_gap_mean"] < 1e-5
    assert lines[0]["kl/ref"] == 0.0 and lines[-1]["kl/ref"] != 0.0  # the reference's temperature
    asked = {}
    for responses, steps in batches[1:4]:
        for row, done in zip(responses, steps, strict=True):
            for response, step in zip(row, done, strict=True):
                asked[step.seed, step.number] = response.temperature
                # turn k asks for at most 4 + k tokens, and the run allows 6
                assert len(response.ids) <= min(6, 3 + step.number)
    assert {0.5, 1.5, 0.8} == set(asked.values())
    for (seed, number), temperature in asked.items():
        assert temperature == (0.5, 1.5, 0.8)[(seed // 2 + number - 1) % 3]


@pytest.mark.skipif(not find_spec("vllm"), reason="only vLLM has JSON, forced calls and the like")
def test_untrained_calls_are_answered_and_never_trained(tmp_path, monkeypatch):
    sampled, answer = [], Engine.response

    def answered(engine, prompt, ids, logps):
        sampled.append(prompt)
        return answer(engine, prompt, ids, logps)

    monkeypatch.setattr(Engine, "response", answered)
    run = tmp_path / "run"
    flags = (
        f"--model {TINY} --engine vllm --endpoint-sampling untrained --num-updates 2 --w-epoch 0"
    )
    lines = train(run, "planner", f"{flags} --response-limit 64 --lr 0.0001 --max-episode-steps 20")
    for line in lines:
        assert line["ppo/ratio_first_minibatch"] == pytest.approx(1, abs=1e-6)
        assert line["engine/logp_gap_mean"] < 1e-5
    turns = records(run, "trajectories.jsonl")
    assert len(turns) == 2 * 8 and not (run / "faults.jsonl").exists()
    for turn in turns:
        # answers of an episode: plan, turn 1, forced call, turn 2, judgement twice
        first = turn["step"] == 2
        assert first or turn["step"] == 4
        assert f"turn {1 if first else 2} of {turn['seed']}" in turn["prompt"]
        assert turn["reward"] == (0.5 if first else 1.0) and turn["terminated"] != first
    assert {name for prompt in sampled for name in prompt.sampling.extra} == {
        "response_format", "tool_choice", "temperature", "n"}  # fmt: skip
    evaluated = records(run, "eval.jsonl")[-1]
    assert evaluated["eval/success"] == 1.0 and evaluated["eval/episode_len"] == 2.0
    assert evaluated["eval/untrained_calls"] == 4.0


def test_trained_tokens_are_the_prompts_sent_and_the_responses_sampled(
    model_dir, tmp_path, monkeypatch
):
    sampled, trained = [], []
    answer, score = Engine.response, Batch.score

    def answered(engine, prompt, ids, logps):
        if isinstance(prompt, Prompt):  # not one that tests the engine's first weights
            sampled.append((tuple(prompt.ids), tuple(ids)))
        return answer(engine, prompt, ids, logps)

    def scored(rollouts, *given):
        score(rollouts, *given)
        trained.extend((tuple(prompt), tuple(ids)) for prompt, ids, _ in rollouts.samples)

    monkeypatch.setattr(Engine, "response", answered)
    monkeypatch.setattr(Batch, "score", scored)
    flags = f"--model {model_dir} --engine transformers --w-epoch 0 --eval-interval 0"
    train(tmp_path / "run", "echo", flags)
    assert sorted(trained) == sorted(sampled) and len(trained) == 3 * 8
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    turns = records(tmp_path / "run", "trajectories.jsonl")
    seed = turns[0]["seed"]
    # the template of the tests, applied by hand to what the program sends first
    first = f"user: seed {seed} turn 0 said \nassistant: "
    assert turns[0]["prompt"] == first
    assert tuple(tokenizer(first, add_special_tokens=False)["input_ids"]) in dict(trained)


def test_prompts_are_the_templates_own_rendering_with_tools():
    """With the embedded model that knows tools."""
    from envs import make_env
    from envs.text_env import act, begin
    from memory.verbatim import VerbatimMemory

    model = str(ROOT / "models" / "tiny-calculator")
    tokenizer = AutoTokenizer.from_pretrained(model)
    render, memory = Renderer(tokenizer, 4096), VerbatimMemory(1)
    env = make_env("agent:agent_programs:with_tools", tokenizer=model, prompt_limit=4096)
    memory.reset(begin(env, 0))
    response = 'So.\n<tool_call>\n{"name": "add", "arguments": {"b": 2, "a": 1}}\n</tool_call>'
    memory.update(act(env, response))
    schema = {"name": "add", "description": "Adds.", "parameters": {"type": "object",
              "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}  # fmt: skip
    call = {"type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": 1}}}
    messages = [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": "So.", "tool_calls": [call]},
        {"role": "tool", "content": "3"},
    ]
    tools = [{"type": "function", "function": schema}]
    ours = tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    prompt = render(memory.messages())
    assert prompt.ids == ours
    assert f"{response}<|im_end|>" in tokenizer.decode(ours)  # as it was sampled
    env.close()


# ---- a run that is interrupted ------------------------------------------------------------------


@pytest.mark.parametrize("program", ["tempered", "pays_first"])
def test_a_killed_run_goes_on_in_mid_episode(program, model_dir, tmp_path):
    run = tmp_path / "run"
    train(run, program, f"--model {model_dir} --engine transformers")
    whole = outcome(run)
    for path in checkpoints(run):
        if path.name > "update-000001":
            shutil.rmtree(path)
    shutil.rmtree(run / "model")
    state = load_checkpoint(run)
    # 2 turns of warm-up and 2 of an update: 1 turn of the second episode of 3 is played
    assert [len(env["responses"]) for env in state["envs"]] == [1] * 4
    assert all(env["truncated"] in ([True], [False]) for env in state["envs"])
    assert main.main(get_args(["--resume", str(run)])) == 0
    assert outcome(run) == whole


@pytest.mark.parametrize("program", ["echo", "moody"])
def test_sigterm_in_mid_request(program, model_dir, tmp_path):
    shutil.copy(ROOT / "tests" / "agent_programs.py", tmp_path / "my_agents.py")
    run, words = tmp_path / "run", f"--env-name agent:my_agents:{program} --model {model_dir}"
    words += " --engine transformers --num-updates 1000 --eval-interval 0 --max-episode-steps 50"
    process = launch(tmp_path, *SMALL.split(), *words.split(), "--run-dir", str(run))
    wait_for(process, "update    2/1000")
    os.kill(process.pid, signal.SIGTERM)
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 128 + signal.SIGTERM and "SIGTERM: saved; go on" in output
    state = load_checkpoint(run)
    updates = state["update"]
    go_on = ["--resume", str(run), "--num-updates", str(updates + 2)]
    output = launch(tmp_path, *go_on).communicate(timeout=100)[0]
    assert not (run / "faults.jsonl").exists(), output
    later = [turn for turn in records(run, "trajectories.jsonl") if turn["update"] > updates]
    assert len(later) == 2 * 8
    for n, place in enumerate(state["envs"]):
        first = next(turn for turn in later if turn["env"] == n)
        # the episodes of echo go on with their next turn; those of moody are left for the next ones
        assert first["episode"] == place["episode"] > 0 or program == "echo"
        assert first["step"] == len(place["responses"]) + 1
        assert program == "echo" or not place["responses"]
        # the record of an episode has its own turns alone: those of the two updates since
        running = load_checkpoint(run)["episodes"]["running"][n]
        assert program == "echo" or running["length"] == 2 * 2


def test_a_request_that_waits_during_an_update_is_answered_by_the_new_policy(model_dir, tmp_path):
    """Turn 3 of an episode is asked for at the end of a batch; the response belongs to the next."""
    run = tmp_path / "run"
    train(run, "echo", f"--model {model_dir} --engine transformers --w-epoch 0")
    turns = records(run, "trajectories.jsonl")
    asked = [turn for turn in turns if turn["env"] == 0]
    # an episode has 3 turns and a batch 2: the third one comes with the second update
    assert [(turn["update"], turn["step"]) for turn in asked] == [
        (1, 1), (1, 2), (2, 3), (2, 1), (3, 2), (3, 3)]  # fmt: skip
    # its prompt has the response from before the update, once
    assert asked[0]["response"] in asked[2]["prompt"] and not (run / "faults.jsonl").exists()
    for line in records(run, "metrics.jsonl"):  # the trained policy has sampled it: log-probs agree
        assert line["engine/logp_gap_mean"] < 1e-5


def test_a_response_is_paid_when_its_worth_is_known(model_dir, tmp_path):
    """Also after its batch: then through the first turn of the episode in the batch at hand."""
    run = tmp_path / "run"
    train(run, "pays_first", f"--model {model_dir} --engine transformers --w-epoch 0")
    turns = [turn for turn in records(run, "trajectories.jsonl") if turn["env"] == 0]
    # 3 turns in an episode, 2 in a batch. In the first episode, .25 comes within the batch and 1
    # after it, for turn 3 beside its own .5. In the second, both come after the batch of turn 1.
    assert [(turn["update"], turn["episode"], turn["step"], turn["reward"]) for turn in turns] == [
        (1, 0, 1, 0.25), (1, 0, 2, 0.0), (2, 0, 3, 1.5), (2, 1, 1, 0.0), (3, 1, 2, 1.25),
        (3, 1, 3, 0.5)]  # fmt: skip
    [evaluated] = records(run, "eval.jsonl")
    assert evaluated["eval/return"] == 1.75


def test_two_ranks_make_the_run_of_one(model_dir, tmp_path):
    shutil.copy(ROOT / "tests" / "agent_programs.py", tmp_path / "my_agents.py")
    flags = [*SMALL.split(), "--model", model_dir, "--engine", "transformers", "--num-updates", "2"]
    flags += ["--env-name", "agent:my_agents:tempered", "--eval-interval", "2"]
    runs = [tmp_path / "alone", tmp_path / "ranks"]
    for ranks, run in zip((0, 2), runs, strict=True):
        process = launch(tmp_path, *flags, "--run-dir", str(run), ranks=ranks)
        output = process.communicate(timeout=300)[0]
        assert process.returncode == 0, output
    alone, together = (records(run, "metrics.jsonl") for run in runs)
    for one, two in zip(alone, together, strict=True):
        for name in ("rollout/reward", "kl/ref", "ppo/value_loss", "ppo/ratio_first_minibatch"):
            assert one[name] == pytest.approx(two[name], rel=1e-3, abs=1e-5), name
    spoken = [[t["response"] for t in records(run, "trajectories.jsonl")][:8] for run in runs]
    assert spoken[0] == spoken[1]
