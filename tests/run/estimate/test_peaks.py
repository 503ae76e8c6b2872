"""The memory estimate against exact peaks of whole updates on a GPU that the host stands in for."""

import json

import pytest
from fake_cuda import TWO_GPUS
from fake_cuda.build import compiler
from real_runs import run

from benchmarks.memory import ON_A_GPU

QUICK = {  # row of the table -> what is smaller here
    "fp32, padded": {},
    "bf16, packed, LoRA, recomputing": dict(hidden=256),
    "ZeRO 2": dict(hidden=256),
    "ZeRO 3, LoRA": dict(n_layers=1, turns=4),
}


@pytest.mark.skipif(compiler() is None, reason="the fake GPU needs g++")
@pytest.mark.parametrize("name", QUICK)
def test_the_estimate_is_within_five_percent_of_the_peak(name):
    """`python tests/fake_cuda -m benchmarks.memory` makes the whole table."""
    row = ON_A_GPU[name] | dict(n_layers=2) | QUICK[name]
    program = ["-m", "benchmarks.memory", json.dumps(row)]
    ended = run(program, ranks=row.get("ranks", 0), at_start=TWO_GPUS)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for measured, estimated in json.loads(ended.stdout.splitlines()[-1]).values():
        assert estimated == pytest.approx(measured, rel=0.05)
