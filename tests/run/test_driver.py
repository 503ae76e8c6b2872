"""GPUs that nvidia-smi lists and torch does not see: a fake nvidia-smi stands on the PATH."""

import pytest
import torch

import main
from common.nvidia_smi import ask_driver
from run.driver import reason, refuse_unseen_gpu, why_unseen

H100 = "NVIDIA H100 80GB HBM3, 550.54.14"
TOY = ["--env-name", "toy", "--n-env", "2", "--e-len", "2", "--minibatch", "4"]


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Return a function that puts a nvidia-smi on the PATH which runs these lines of sh."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def put(script: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return put


def test_a_run_stops_where_torch_cannot_use_the_gpu(nvidia_smi, capsys, tmp_path, monkeypatch):
    nvidia_smi(f"echo '{H100}'; echo '{H100}'")
    monkeypatch.chdir(tmp_path)
    assert main.program([*TOY, "--run-dir", "run"]) == 2
    line = capsys.readouterr().err
    seen = "2 GPUs (NVIDIA H100 80GB HBM3, driver 550.54.14)"
    assert f"error: nvidia-smi lists {seen}, but torch {torch.__version__} sees none" in line
    assert "built for CPUs" in line and "set CUDA_VISIBLE_DEVICES to nothing" in line
    assert line.count("\n") == 1 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_gpu_that_is_hidden_on_purpose_does_not_stop_a_run(value, nvidia_smi, monkeypatch):
    nvidia_smi(f"echo '{H100}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    refuse_unseen_gpu()


def test_a_machine_without_a_gpu_is_not_stopped(nvidia_smi):
    nvidia_smi("echo 'No devices were found'; exit 6")  # a node of a cluster without one
    assert ask_driver().error == "nvidia-smi fails: No devices were found"
    refuse_unseen_gpu()


@pytest.mark.parametrize(
    ("version", "cuda", "visible", "words"),
    [
        # CUDA 13 came with driver 580.65
        ("550.54.14", "13.0", None, "CUDA 13.0, which needs driver 580.65 or newer"),
        ("580.65.06", "13.0", "7", "CUDA_VISIBLE_DEVICES=7 names none of them"),
        ("550.54.14", "12.8", "7", "CUDA_VISIBLE_DEVICES=7 names none of them"),
        ("550.54.14", None, None, "constraints-cuda.txt"),
    ],
)
def test_the_reason_has_a_remedy(version, cuda, visible, words):
    assert words in reason(version, cuda, visible)


def test_a_gpu_that_torch_sees_is_no_matter(nvidia_smi, monkeypatch):
    nvidia_smi(f"echo '{H100}'")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert why_unseen(ask_driver()) == ""
