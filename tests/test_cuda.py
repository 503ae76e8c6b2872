"""The trainer on a GPU that the host stands in for; `tests/fake_cuda` says what that can show."""

import pytest
from fake_cuda.build import compiler
from real_runs import run

if compiler() is None:
    pytest.skip("the fake GPU needs g++", allow_module_level=True)

SMALL = """--env-name babyai-goto --model models/tiny --engine transformers --n-env 4 --e-len 2
--minibatch 4 --num-updates 1 --ppo-epoch 1 --w-epoch 0 --eval-interval 0 --max-episode-steps 4"""


def test_an_update_in_bf16(tmp_path):
    ended = run(["tests/fake_cuda", "main.py", *SMALL.split(), "--run-dir", tmp_path / "run"])
    assert ended.returncode == 0, ended.stderr[-3000:]
