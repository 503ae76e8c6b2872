"""Two real ranks over gloo: what they compute is what one process computes."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from ranks import train
from real_runs import run
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

import main
from arguments import get_args
from common.errors import RunError
from common.processors import processors_of_a_rank
from ppo.distributed import import_deepspeed, threads, together
from ppo.model.make import build
from ppo.model.pretrained import load_lm
from recipes import TINY
from run.saved import checkpoints, damaged

ROOT = Path(__file__).resolve().parents[2]
STAGES = ["0+merged", "1", "2+offload", "2+lora", "3+untied", "3+merged+recompute+sharded"]
STAGES += ["3+lora+recompute"]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    out = tmp_path_factory.mktemp("ranks") / "out.pt"
    ended = run(["tests/ranks.py", out, *STAGES], ranks=2)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return torch.load(out)


@pytest.fixture(scope="module")
def one_process():
    return {kind: train("0" + kind) for kind in ("", "+untied", "+lora", "+merged")}


def kind_of(stage: str) -> str:
    """What one process has to do for the same numbers."""
    return next((kind for kind in ("+untied", "+lora", "+merged") if kind in stage), "")


@pytest.mark.parametrize("stage", STAGES)
def test_parameters_do_not_depend_on_the_number_of_ranks(stage, two_ranks, one_process):
    alone, _ = one_process[kind_of(stage)]
    parameters, _ = two_ranks[stage]
    assert_close(parameters, alone, atol=1e-4, rtol=0)


@pytest.mark.parametrize("stage", STAGES)
def test_metrics_do_not_depend_on_the_number_of_ranks(stage, two_ranks, one_process):
    _, alone = one_process[kind_of(stage)]
    for ours, theirs in zip(two_ranks[stage][1], alone, strict=True):
        known = {name: value for name, value in theirs.items() if value is not None}
        assert {name: ours[name] for name in known} == pytest.approx(known, abs=1e-3, rel=1e-3)
        assert ours.keys() == theirs.keys()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[/third_party/gloo/tcp/pair.cc:537] Read error [::1]:29: Connection reset by peer. "
         "This is typically caused by a remote worker crashing.",
         "Read error [::1]:29: Connection reset by peer"),
        ("ncclRemoteError: a network error or a remote process exited prematurely.",
         "ncclRemoteError: a network error or a remote process exited prematurely."),
        ("NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", None),
        ("[gloo] Timed out waiting 14400000ms for recv operation to complete", None),
    ],
)  # fmt: skip
def test_only_a_dead_rank_is_called_one(text, reason):
    line = f"another rank has ended ({reason!r})" if reason else text
    error = RunError if reason else RuntimeError
    with pytest.raises(error, match=f"^{re.escape(line)}$"):
        with together():
            raise RuntimeError(text)


def test_an_offloaded_step_has_the_processors_of_its_rank(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    before = torch.get_num_threads()
    with threads(processors_of_a_rank()):
        assert torch.get_num_threads() == 4
    assert torch.get_num_threads() == before
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "32")
    assert processors_of_a_rank() == 1


LOUD = """
class Ops:
    @property
    def __compatible_ops__(self):
        print("[WARNING] cutlass_ops compatibility check failed (CUDA_HOME does not exist)")
        return {}
ops = Ops()
"""


def test_deepspeed_warns_of_no_op_that_nobody_asked_for(tmp_path, monkeypatch, capsys):
    (tmp_path / "deepspeed.py").write_text(LOUD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "deepspeed", raising=False)
    assert import_deepspeed().__file__ == str(tmp_path / "deepspeed.py")
    del sys.modules["deepspeed"]
    assert capsys.readouterr().out == ""


# One rank of --zero-stage 3, made in the order of `main.main`.
IN_MAINS_ORDER = """
import deepspeed, torch
from arguments import get_args
from recipes import TINY
from ppo.make import make_agent
from ppo.distributed import make_ranks
from ppo.model.make import make_model, make_reference
from run.logger import parameter_count
from storage.minibatch import MicroBatch

initialize = deepspeed.initialize

def watched(**options):
    print("at a start:", deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"])
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # so that nothing is compiled
    return initialize(**options)

deepspeed.initialize = watched
flags = "--env-name toy --zero-stage 3 --dtype bfloat16 --model"
args = get_args([*flags.split(), str(TINY)])
ranks = make_ranks(args.zero_stage)
actor_critic, *_ = make_model(args.generation, args.update, ranks.device, args.seed)
reference = make_reference(args.update, actor_critic)
agent = make_agent(args.update, actor_critic, ranks, args.seed)
ids, mask = torch.arange(20).view(2, 10), torch.arange(10).expand(2, 10) > 4
batch = MicroBatch(torch.arange(2), ids, mask, ids[mask], torch.ones(10))
with torch.no_grad():
    gap = reference(batch) - agent.stepper.model(batch).logps
print("gap:", gap.abs().max().item())
print("parameters:", parameter_count(actor_critic), len(actor_critic.lm.model.norm.weight))
"""


def test_deepspeed_compiles_nothing_at_any_start():
    ended = run(["-c", IN_MAINS_ORDER])
    assert ended.returncode == 0, ended.stderr[-3000:]
    output = ended.stdout.splitlines()
    # the reference's start and the actor-critic's
    starts = [line for line in output if line.startswith("at a start")]
    assert starts == ["at a start: False"] * 2
    assert "gap: 0.0" in output  # shards of bf16 and fp32 are put together again
    # those of the same model that are not sharded: each norm is empty here, but counts
    whole = build(load_lm(str(TINY), "cpu")[0], 1)
    assert f"parameters: {sum(p.numel() for p in whole.parameters())} 0" in output


# ---- the whole program ----------------------------------------------------------------------

FLAGS = """main.py --env-name toy --n-env 4 --e-len 4 --minibatch 8 --w-epoch 2 --seed 3
    --eval-episodes 6 --save-interval 1""".split()


@pytest.fixture(scope="module")
def run_of_two(tmp_path_factory):
    """One update by two ranks with vLLM on each, then another one after a resume."""
    path = tmp_path_factory.mktemp("runs") / "two"
    flags = ["--model", TINY, "--num-updates", 1, "--zero-stage", 2, "--run-dir", path]
    for more in (flags, ["--resume", path, "--num-updates", 2]):
        ended = run([*(FLAGS if more is flags else ["main.py"]), *more], ranks=2)
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert ended.stdout.count(f"trained model: {path / 'model'}") == 1  # one of them speaks
    return path


def check_equal(by_two: Path, by_one: Path) -> None:
    """The logs of a run by two ranks are those of a run by one process."""
    for file in ("metrics.jsonl", "eval.jsonl", "warmup.jsonl"):
        ours, theirs = lines(by_two / file), lines(by_one / file)
        assert len(ours) == len(theirs) > 0
        for one, other in zip(ours, theirs, strict=True):
            assert one.keys() == other.keys()
            assert [k for k in one if (one[k] is None) != (other[k] is None)] == []
            same = [
                k for k in one if one[k] is not None and k[:5] != "time/" and k[:7] != "engine/"
            ]
            wanted = pytest.approx([other[k] for k in same], abs=2e-3, rel=1e-3)
            assert [one[k] for k in same] == wanted, (file, same)


def test_two_ranks_play_and_learn_like_one_process(run_of_two, tmp_path):
    flags = ["--model", TINY, "--num-updates", 2, "--run-dir", tmp_path / "run"]
    assert main.program([str(word) for word in FLAGS[1:] + flags]) == 0
    evals = lines(run_of_two / "eval.jsonl")
    assert [line["update"] for line in evals] == [0, 1, 2]  # it first ended after one update
    copied = shutil.copytree(run_of_two, tmp_path / "two")
    text = "".join(json.dumps(line) + "\n" for line in evals if line["update"] != 1)
    (copied / "eval.jsonl").write_text(text)
    check_equal(copied, tmp_path / "run")


def test_two_ranks_call_tools(tmp_path):
    model = ["--model", f"{TINY}-calculator", "--num-updates", 1, "--engine", "transformers"]
    flags = [*FLAGS, *model, "--env-name", "tools-calculator", "--run-dir"]
    two = run([*flags, tmp_path / "two"], ranks=2)
    assert two.returncode == 0, two.stderr[-3000:]
    assert main.program([str(word) for word in [*flags[1:], tmp_path / "one"]]) == 0
    check_equal(tmp_path / "two", tmp_path / "one")
    assert lines(tmp_path / "one" / "metrics.jsonl")[0]["rollout/valid_action"] > 0.5


def test_two_ranks_save_one_checkpoint(run_of_two):
    assert [path.name for path in checkpoints(run_of_two)][-1] == "update-000002"
    assert all(damaged(path) is None for path in checkpoints(run_of_two))
    lm = AutoModelForCausalLM.from_pretrained(run_of_two / "model", dtype=torch.float32)
    started = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)

    def gap(p, q):
        return (p - q).abs().max().item()

    moved = [gap(p, q) for p, q in zip(lm.parameters(), started.parameters(), strict=True)]
    assert 0 < max(moved) < 0.01


def test_a_checkpoint_of_shards_wants_as_many_ranks(run_of_two):
    with pytest.raises(ValueError, match="it is of 2 ranks, --zero-stage 2"):
        flags = ["--num-updates", "3", "--zero-stage", "0"]
        main.main(get_args(["--resume", str(run_of_two), *flags]))
