"""The custom environment, memory, estimator and engine of the examples, all in one small run."""

import json
import re
from pathlib import Path

import pytest
import torch
from conftest import make_prompt

import main
from arguments import get_args
from envs import make_env
from envs.text_env import act, begin
from examples.first_sight import FirstSight
from examples.plain_engine import PlainEngine
from ppo.engines.lockstep import TransformersEngine
from ppo.model.make import build

ROOT = Path(__file__).resolve().parents[2]
FLAGS = """--env-name examples.matches:Matches-v0 --memory examples.first_sight:FirstSight
--advantages examples.reinforce:reinforce --engine examples.plain_engine:PlainEngine
--group-size 1 --n-env 2 --e-len 2 --minibatch 4 --num-updates 1 --max-episode-steps 2
--response-limit 4 --prompt-limit 4096 --eval-interval 0 --lr 0.01"""


def test_a_run_with_all_of_them(model_dir, tmp_path):
    run = tmp_path / "run"
    assert main.main(get_args([*FLAGS.split(), "--model", model_dir, "--run-dir", str(run)])) == 0
    [update] = [json.loads(line) for line in open(run / "metrics.jsonl")]
    assert update["ppo/grad_norm"] > 0 and update["ppo/value_loss"] is None
    turns = [json.loads(line) for line in open(run / "trajectories.jsonl")]
    firsts = {turn["seed"]: turn["observation"] for turn in turns if turn["step"] == 1}
    for turn in turns:  # random letters: the default action takes one match
        assert f"At the beginning you saw:\n{firsts[turn['seed']]}" in turn["prompt"]
        assert turn["action"] == "take one" and not turn["valid"]
    # G of a turn: its penalty, and .99 of the next one's; the mean of -.199 and -.1 is -.1495
    spread = {round(turn["advantages"][0], 4) for turn in turns}
    assert spread == {round(-0.1 - 0.99 * 0.1 + 0.1495, 4), round(-0.1 + 0.1495, 4)}


def test_the_last_match_wins():
    env = make_env("examples.matches:Matches-v0")
    for seed in range(20):
        left = int(begin(env, seed).text.split()[0])
        assert 5 <= left <= 15
        while True:
            # with four left an opponent cannot win; who leaves a multiple of four never loses
            step = act(env, "ACTION: take " + ("three", "one", "two", "three")[left % 4])
            left = int(step.observation.text.split()[0])
            if step.done:
                break
        assert step.reward == float(step.success) and (step.success or left == 0)
    env.close()


def test_the_plain_engine_samples_like_the_built_in_one(lm, tokenizer):
    results = []
    for kind in (PlainEngine, TransformersEngine):
        engine = kind(tokenizer, {0}, 6, 1.0, max_num_seqs=3)
        engine.push_weights(build(lm, 0))
        for slot, ids in enumerate([[5, 6, 7], [8, 9, 10, 11], [15]]):
            engine.submit(slot, make_prompt(ids), seed=(1, slot))
        answers = {}
        while not engine.idle:
            answers |= dict(engine.step())
        results.append(answers)
    for slot in range(3):
        ours, theirs = results[0][slot], results[1][slot]
        assert ours.ids == theirs.ids
        assert ours.logps == pytest.approx(theirs.logps, abs=1e-4)


def test_the_memory_keeps_the_first_observation():
    memory, env = FirstSight(1), make_env("toy")
    memory.reset(begin(env, 1))
    first = memory.first
    for _ in range(3):
        memory.update(act(env, "ACTION: red"))
    assert memory.messages()[0]["content"].endswith(f"At the beginning you saw:\n{first}")
    assert len(memory.messages()) == 4  # system, a turn of two, the current observation


def test_the_page_shows_the_files():
    page = (ROOT / "docs" / "your-own.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == 4
    files = [path.read_text() for path in (ROOT / "examples").glob("*.py")]
    for block in blocks:
        assert any(block in text for text in files), block
    environment = [line for line in blocks[0].splitlines() if line.strip()]
    assert sum(not line.startswith(("import", "from")) for line in environment) == 15


def test_reinforce_by_hand():
    from examples.reinforce import reinforce
    from ppo.advantages import Batch

    # one environment, two turns of one token that end the episode with 1; gamma_step = .5
    # G = .5, 1, whose mean is .75: advantages -.25 and .25
    mask = torch.ones(2, 1, 1, dtype=torch.bool)
    rewards = torch.tensor([0.0, 1.0]).view(2, 1, 1)
    ends = torch.tensor([[False], [True]])
    batch = Batch(rewards, None, mask, None, ends, [], 0.5, 1.0, 1.0, 1.0)
    assert reinforce(batch).flatten().tolist() == pytest.approx([-0.25, 0.25])
