"""Two ranks that share one vLLM sample and learn what one rank does, and end together."""

import importlib.util
import json

import pytest
from real_runs import run

import main
from common.plugins import UserError
from ppo.engines.shared import Sharing

SMALL = """--env-name babyai-goto --model models/tiny --n-env 4 --e-len 2 --minibatch 4
--num-updates 2 --w-epoch 0 --eval-interval 2 --eval-episodes 1 --max-episode-steps 3
--response-limit 8 --dtype float32 --lr 1e-4 --log-envs 4""".split()
FAILS = "vLLM fails in a step (KeyError: 'block 3'); --engine transformers needs no vLLM"
ENDINGS = {  # of a rank in a step -> seconds in which it is heard, exit code, what the ranks say
    "inside": (1, 1, [f"main.py: error: rank 1: {FAILS}", "another rank has ended"]),
    "killed": (60, 1, ["another rank has ended"]),
    "after": (60, 1, [
        "rank 0: saved", f"rank 0: the engine of 2 ranks failed on another one ({FAILS})",
        "rank 1: saved", f"main.py: error: rank 1: {FAILS}",
    ]),
    "both": (60, 1, [
        "rank 0: saved", f"error: rank 0: {FAILS}", "rank 1: saved", f"error: rank 1: {FAILS}",
    ]),
    "signalled": (60, 0, ["SIGTERM: the run", "rank 0: SIGTERM, saved", "rank 1: SIGTERM, saved"]),
}  # fmt: skip


def records(folder, name: str) -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def metrics(folder) -> list[dict]:
    skipped = ("time/", "engine/prefix_hits")  # a shared engine finds other ranks' prompts, too
    return [
        {name: x for name, x in record.items() if x is not None and not name.startswith(skipped)}
        for record in records(folder, "metrics.jsonl")
    ]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_ranks_that_share_an_engine_do_what_one_rank_does(tmp_path):
    two, one = tmp_path / "two", tmp_path / "one"
    flags = ["--engine", "vllm:2", "--zero-stage", "3", "--run-dir", two]
    # in the evaluation, of one episode, the first rank has none
    ended = run(["main.py", *SMALL, *flags], ranks=2)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "vllm_ranks 2" in ended.stdout
    assert main.program([*SMALL, "--engine", "vllm", "--run-dir", str(one)]) == 0
    assert records(two, "eval_episodes.jsonl") == records(one, "eval_episodes.jsonl")
    ours, theirs = records(two, "trajectories.jsonl"), records(one, "trajectories.jsonl")
    assert [turn["tokens"] for turn in ours] == [turn["tokens"] for turn in theirs]
    for mine, other in zip(metrics(two), metrics(one), strict=True):
        assert mine == pytest.approx(other, rel=1e-3, abs=1e-3)
        assert mine["engine/push_gap"] < 1e-5 and mine["engine/logp_gap_mean"] < 1e-5


@pytest.mark.parametrize("how", ENDINGS)
def test_ranks_that_share_an_engine_end_together(how):
    seconds, code, lines = ENDINGS[how]
    program = ["tests/ppo/engines/failing_steps.py", how, seconds]
    ended = run(program, ranks=2, timeout=100)
    said = sorted(line for line in ended.stderr.splitlines() if line)
    assert ended.returncode == code and len(said) == len(lines), ended.stderr
    assert all(any(line in one for one in said) for line in lines), ended.stderr


def test_one_rank_cannot_share_its_engine():
    with pytest.raises(UserError, match="^--engine vllm:2: 2 ranks share .* and this run has 1;"):
        Sharing(2)
