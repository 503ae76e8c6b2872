"""The trainer on a GPU that the host stands in for; `tests/fake_cuda` says what that can show."""

import subprocess

import pytest
from fake_cuda.build import compiler
from real_runs import run

if compiler() is None:
    pytest.skip("the fake GPU needs g++", allow_module_level=True)

SMALL = """--env-name babyai-goto --model models/tiny --engine transformers --n-env 4 --e-len 2
--minibatch 4 --num-updates 1 --ppo-epoch 1 --w-epoch 0 --eval-interval 0 --max-episode-steps 4"""


def on_gpus(command, **options) -> subprocess.CompletedProcess:
    """Run a command, as `real_runs.run` does, in processes that have two GPUs."""
    ended = run(command, at_start=[("FAKE_CUDA_DEVICES", "2")], **options)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended


def test_an_update_in_bf16(tmp_path):
    on_gpus(["main.py", *SMALL.split(), "--run-dir", tmp_path / "run"])
    assert (tmp_path / "run/model/config.json").exists()
