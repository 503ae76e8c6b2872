"""Two ranks that share one vLLM sample what one rank does, and a run learns the same."""

import importlib.util
import json

import pytest
from real_runs import run

from common.plugins import UserError
from ppo.engines.shared import neighbours

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vLLM is not installed", allow_module_level=True)

SMALL = """main.py --env-name babyai-goto --model models/tiny --n-env 4 --e-len 2 --minibatch 4
--num-updates 2 --w-epoch 1 --w-iter 1 --w-fraction 0.5 --eval-interval 2 --eval-episodes 3
--max-episode-steps 3 --response-limit 8 --dtype float32 --lr 1e-5"""


def played(out, sharing: int, ranks: int) -> dict:
    ended = run(["tests/ppo/engines/shared_engine.py", out, sharing], ranks=ranks)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(out.read_text())


def test_ranks_that_share_an_engine_sample_what_one_does(tmp_path):
    together, alone = played(tmp_path / "2.json", 2, 2), played(tmp_path / "1.json", 1, 0)
    assert max(together["gap"], alone["gap"]) < 1e-4
    for ours, theirs in zip(together["batches"], alone["batches"], strict=True):
        # all turns of the environments 1 to 3; the second batch leaves environment 1 out
        assert len(ours) in (7, 6)
        assert [turn[:3] for turn in ours] == [turn[:3] for turn in theirs]  # with the ids
        for ours_logps, theirs_logps in ((a[3], b[3]) for a, b in zip(ours, theirs, strict=True)):
            assert ours_logps == pytest.approx(theirs_logps, abs=1e-5)


def metrics(folder) -> list[dict]:
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    skipped = ("time/", "engine/prefix_hits")  # a shared engine finds other ranks' prompts, too
    return [{k: v for k, v in r.items() if not k.startswith(skipped)} for r in records]


def test_a_run_whose_ranks_share_an_engine_learns_what_one_rank_does(tmp_path):
    flags = ["--engine", "vllm:2", "--zero-stage", "3", "--run-dir", tmp_path / "two"]
    ended = run([*SMALL.split(), *flags], ranks=2)
    assert ended.returncode == 0, ended.stderr[-3000:]
    ended = run([*SMALL.split(), "--engine", "vllm", "--run-dir", tmp_path / "one"])
    assert ended.returncode == 0, ended.stderr[-3000:]
    for ours, theirs in zip(metrics(tmp_path / "two"), metrics(tmp_path / "one"), strict=True):
        known = {name: value for name, value in theirs.items() if value is not None}
        assert {name: ours[name] for name in known} == pytest.approx(known, rel=1e-3, abs=1e-3)


def test_one_rank_cannot_share_its_engine():
    with pytest.raises(UserError, match="^--engine vllm:2: 2 ranks share .* and this run has 1;"):
        neighbours(2)
