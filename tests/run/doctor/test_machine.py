"""The checks of a GPU and of the room for a run, each fed with the condition that it is to find."""

import pytest
import torch

from arguments import get_args
from common.nvidia_smi import Driver
from recipes import TINY
from run.doctor import machine
from run.estimate import advice as estimate


@pytest.fixture(scope="module")
def args():
    return get_args(["--env-name", "toy", "--model", str(TINY), "--engine", "transformers"])


@pytest.fixture
def gpu(monkeypatch):
    """Let torch see a GPU of 80 GB with 79 GB free."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (79 * 10**9, 80 * 10**9))


def test_the_driver(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.driver(Driver([])).found.startswith("no GPU")
    assert machine.driver(Driver(["H100"], "550.54")).mark == "FAIL"
    assert machine.driver(Driver([], error="nvidia-smi fails: mismatch")).mark == "FAIL"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.driver(Driver(["H100"], "550.54")).found.startswith("CUDA_VISIBLE_DEVICES hides")


def test_an_old_gpu_has_no_bfloat16(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    finding = machine.capability()
    assert finding.mark == "FAIL" and "--dtype float32" in finding.remedy
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    assert machine.capability().mark == "pass"


def test_memory_that_others_hold(gpu, args, monkeypatch):
    assert machine.memory(args).mark == "pass"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**6, 80 * 10**9))
    finding = machine.memory(args)
    assert finding.mark == "FAIL" and "0.00 GB are free" in finding.found
    assert "--gpu-memory-utilization" in finding.remedy


def test_a_run_that_does_not_fit_gets_the_advice_of_fit(args, monkeypatch):
    monkeypatch.setattr(estimate, "capacities", lambda ranks: (10**6, 10**6))
    finding = machine.memory(args)
    assert finding.mark == "FAIL" and "With one change: " in finding.remedy


def test_a_disk_that_is_nearly_full(args, monkeypatch, tmp_path):
    args.run_dir = tmp_path / "not" / "yet"
    usage = type("Usage", (), {"free": 5 * 10**6})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage if path == tmp_path else None)
    finding = machine.disk(args)
    # 4 checkpoints of 12 bytes for each of 0.2 million parameters, and two models of 4 bytes
    assert finding.mark == "FAIL" and f"{tmp_path} has 0.01 GB free" in finding.found
    assert "--run-dir" in finding.remedy
    usage.free = 10**9
    assert machine.disk(args).mark == "pass"
