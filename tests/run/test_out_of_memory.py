"""Memory that runs out: a table, and one line with the moment and the advice; no traceback."""

import pytest
import torch

import main
from common.errors import OutOfMemory, RunError
from ppo.agent import Agent
from ppo.model.make import build
from ppo.model.reloaded import try_export
from run.out_of_memory import explained
from run.saved import checkpoints, damaged
from storage.collection import Collection

CUDA = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB of "
    "which 1.50 GiB is free. Including non-PyTorch memory, this process has 77.60 GiB in use."
)
TOY = "--env-name toy --n-env 2 --e-len 2 --minibatch 4 --num-updates 3 --eval-interval 0"


def program(model_dir: str, run, more: str = "--w-epoch 0") -> int:
    flags = f"{TOY} {more} --engine transformers --response-limit 4 --prompt-limit 8192"
    return main.program([*flags.split(), "--model", model_dir, "--run-dir", str(run)])


def check_line(err: str, moment: str, reason: str) -> str:
    """The standard error is the table and one line. Returns the line."""
    *table, line = err.splitlines()
    assert line.startswith(f"main.py: error: out of memory {moment} ({reason}")
    assert "The estimate is 0." in line and "With one change: " in line and "Traceback" not in err
    assert "(fits)" not in line  # the estimate said so before, and was wrong
    assert table[0].startswith("GB per rank") and any(row.startswith("total") for row in table)
    return line


@pytest.mark.parametrize(
    ("where", "method", "error", "moment", "reason"),
    [
        (Agent, "update", torch.OutOfMemoryError(CUDA), "in the update", "CUDA out of memory. "
         "Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.50 GiB"),
        (Collection, "insert", MemoryError(), "while turns are collected", "MemoryError)"),
    ],
)  # fmt: skip
def test_a_run_out_of_memory_is_saved(
    where, method, error, moment, reason, model_dir, tmp_path, monkeypatch, capsys
):
    def fail(*args):
        raise error

    monkeypatch.setattr(where, method, fail)
    assert program(model_dir, tmp_path / "run") == 1
    line = check_line(capsys.readouterr().err, moment, reason)
    folders = checkpoints(tmp_path / "run")
    assert [damaged(path) for path in folders] == [None]
    # the update is outside of the block that saves; what is collected is inside
    assert ("saved; go on with: " in line) == (method == "insert")


def test_an_engine_that_lacks_memory_at_its_start(model_dir, tmp_path, monkeypatch, capsys):
    line = "vLLM does not start: Free memory on device (3/80 GiB) on startup is less than desired"

    def fail(*args):
        raise OutOfMemory(line)

    monkeypatch.setattr(main, "make_engine", fail)
    assert program(model_dir, tmp_path / "run") == 1
    check_line(capsys.readouterr().err, "while the run starts", line)


@pytest.mark.parametrize("test", ["acceptance.logits_of", "reloaded.test_turns"])
def test_a_test_of_the_model_that_lacks_memory_does_not_refuse_it(test, lm, monkeypatch):
    def fail(*args):
        raise torch.OutOfMemoryError(CUDA)

    model = build(lm, 1)
    monkeypatch.setattr(f"ppo.model.{test}", fail)
    with pytest.raises(torch.OutOfMemoryError):
        build(lm, 1, packed=True)
        try_export(model, "--model m")


def test_other_errors_are_left_alone():
    with pytest.raises(RunError, match="^rank 1: out of memory in the update$"):
        with explained(None, "in the update"):
            raise RunError("rank 1: out of memory in the update")
    with pytest.raises(RuntimeError, match="^a bug$"):
        with explained(None, "in the update"):
            raise RuntimeError("a bug")


def test_a_model_without_an_estimate_has_its_line_all_the_same(monkeypatch):
    args = type("Args", (), {"model": "/none"})
    with pytest.raises(RunError, match=r"^out of memory in the update \(CUDA out of memory\)$"):
        with explained(args, "in the update"):
            raise torch.OutOfMemoryError("CUDA out of memory")
