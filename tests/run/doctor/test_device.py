"""What the doctor computes on the device, right and wrong, and what it prints about it."""

import pytest
from torch.nn.functional import scaled_dot_product_attention

from arguments import get_args
from common.errors import RunError
from common.ranks import ALONE
from ppo.model import packing
from ppo.optimizer import Stepper
from recipes import TINY
from run.doctor import checks, host
from run.doctor.device import Device
from run.doctor.finding import Check, Finding, examine, failed, passed, skipped

RIGHT = packing._attend_one_by_one


@pytest.fixture(scope="module")
def args():
    return get_args(["--env-name", "toy", "--model", str(TINY), "--engine", "transformers"])


@pytest.fixture(scope="module")
def device(args):
    made = Device(args)
    assert made.begin(ALONE) == passed("cpu")
    return made


def test_every_check_has_a_line_and_a_failure_has_a_remedy(args, monkeypatch, capsys):
    bad = failed("64 open files", "ulimit -Hn")
    monkeypatch.setattr(host, "open_files", lambda: bad)
    assert checks.check_machine(args) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    marks = {line[6:24].strip(): line[:4] for line in lines}
    assert list(marks) == [
        "versions", "locale", "open files", "shared memory", "libraries", "driver", "capability",
        "C compiler", "memory", "disk", "device", "ranks", "packed rows", "optimizer step",
        "engine start", "engine push", "engine sleep", "engine wake, push",
    ]  # fmt: skip
    assert "FAIL  open files         64 open files; remedy: ulimit -Hn" in lines
    assert last.startswith("1 check failed")
    marks.pop("open files")
    assert {name for name, mark in marks.items() if mark == "skip"} == {"capability", "ranks"}
    assert "FAIL" not in marks.values()


def all_see_all(query, key, value, turns, scale):
    out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
    return out.transpose(1, 2)


def half_of_the_gradient(query, key, value, turns, scale):
    return RIGHT((query + query.detach()) / 2, key, value, turns, scale)


@pytest.mark.parametrize("wrong", [all_see_all, half_of_the_gradient])
def test_packed_rows_that_are_wrong(wrong, device, monkeypatch):
    assert device.packed().mark == "pass"
    monkeypatch.setattr(packing, "_attend_one_by_one", wrong)
    finding = device.packed()
    assert (finding.mark, finding.remedy) == ("FAIL", "--rows padded")


def test_a_step_that_is_not_adams(device, monkeypatch):
    step = Stepper.step

    def twice(self, loss):
        for p in self.actor_critic.parameters():
            if p.grad is not None:
                p.data -= 1e-3 * p.grad.sign()
        return step(self, loss)

    assert device.step().mark == "pass"
    monkeypatch.setattr(Stepper, "step", twice)
    assert device.step().mark == "FAIL"


def test_an_engine_that_fails_is_not_asked_again(device, monkeypatch):
    device.step()
    assert device.start() == passed("transformers")

    def fail(actor_critic):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(device.engine, "push_weights", fail)
    finding, _ = examine(Check("engine push", device.push, "--engine transformers"))
    wanted = "RuntimeError: no kernel image is available"
    assert finding == failed(wanted, "--engine transformers")
    assert device.sleep() == device.wake() == skipped("there is no engine")


def test_an_engine_that_one_rank_cannot_share():
    flags = ["--env-name", "toy", "--model", str(TINY), "--engine", "vllm-lora:2"]
    alone = Device(get_args(flags))
    alone.begin(ALONE)
    finding, _ = examine(Check("engine start", alone.start, "--engine transformers"))
    assert finding.found.startswith("--engine vllm-lora:2: 2 ranks share an engine")


def test_of_many_ranks_those_that_fail_are_named():
    good, bad = passed("2 ranks"), failed("one is away", "NCCL_DEBUG=INFO")
    assert checks.failures_or_first([good, good]) == [good]
    named = [Finding("FAIL", "rank 1: one is away", "NCCL_DEBUG=INFO")]
    assert checks.failures_or_first([good, bad]) == named


def test_a_rank_that_ends_is_a_failure(args, monkeypatch, capsys):
    def lost(*_):
        raise RunError("another rank has ended ('Connection closed by peer')")

    monkeypatch.setattr(checks, "check_run", lost)
    assert checks.check_machine(args) == 1
    line = capsys.readouterr().out.splitlines()[-2]
    assert line.startswith("FAIL  ranks              another rank has ended")
