"""Two real ranks over gloo: what they compute is what one process computes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ranks import train
from torch.testing import assert_close

ROOT = Path(__file__).resolve().parent.parent
STAGES = ["0", "1", "2", "3", "2+offload", "3+untied"]


def torchrun(*command, ranks=2, **env):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    quiet = dict(OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1", PYTHONWARNINGS="ignore")
    return subprocess.run(
        [*launch, f"--nproc-per-node={ranks}", *map(str, command)],
        env=os.environ | quiet | env,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    out = tmp_path_factory.mktemp("ranks") / "out.pt"
    run = torchrun("tests/ranks.py", out, *STAGES)
    assert run.returncode == 0, run.stderr[-3000:]
    return torch.load(out)


@pytest.fixture(scope="module")
def one_process():
    return {end: train("0" + end) for end in ("", "+untied")}


@pytest.mark.parametrize("stage", STAGES)
def test_parameters_do_not_depend_on_the_number_of_ranks(stage, two_ranks, one_process):
    alone, _ = one_process["+untied" * stage.endswith("+untied")]
    parameters, _ = two_ranks[stage]
    assert_close(parameters, alone, atol=1e-4, rtol=0)


@pytest.mark.parametrize("stage", STAGES)
def test_metrics_do_not_depend_on_the_number_of_ranks(stage, two_ranks, one_process):
    _, alone = one_process["+untied" * stage.endswith("+untied")]
    for ours, theirs in zip(two_ranks[stage][1], alone, strict=True):
        known = {name: value for name, value in theirs.items() if value is not None}
        assert {name: ours[name] for name in known} == pytest.approx(known, abs=1e-3, rel=1e-3)
        assert ours.keys() == theirs.keys()
