"""The checks of `turnwise doctor` in their order, and what it prints about them."""

import os
import time
from functools import partial
from importlib import import_module

from common.errors import RunError
from common.processors import ranks_here
from run.doctor import host
from run.doctor.finding import Check, Finding, examine, failed, line_of, passed

CPU = "CUDA_VISIBLE_DEVICES= trains on the CPU meanwhile"
MODEL = "--model DIRECTORY of a model that is on this machine"
ENGINE = "--engine transformers, or another --gpu-memory-utilization"


class Report:
    """Prints a line per check, on the first of several ranks, and counts the failures."""

    def __init__(self):
        self.began, self.failures = time.perf_counter(), 0
        self.leads = os.environ.get("RANK", "0") == "0"

    def __call__(self, check: Check, ranks=None) -> bool:
        """Make a check. ranks: those that make it together. Returns whether it did not fail."""
        finding, seconds = examine(check)
        findings = [finding] if ranks is None else failures_or_first(ranks.gather([finding]))
        for each in findings:
            if self.leads:
                print(line_of(check.name, each, seconds), flush=True)
        fails = any(each.mark == "FAIL" for each in findings)
        self.failures += fails
        return not fails

    def end(self) -> int:
        """Print the last line and return the exit code."""
        n = self.failures
        verdict = f"{n} check{'s' * (n > 1)} failed" if n else "no check failed"
        if self.leads:
            print(f"{verdict} ({time.perf_counter() - self.began:.0f} s)")
        return 1 if self.failures else 0


def failures_or_first(findings: list[Finding]) -> list[Finding]:
    """Return the failures among the findings of all ranks, or the finding of the first rank."""
    if len(findings) == 1:
        return findings
    bad = [(rank, each) for rank, each in enumerate(findings) if each.mark == "FAIL"]
    named = [Finding("FAIL", f"rank {rank}: {each.found}", each.remedy) for rank, each in bad]
    return named or findings[:1]


def check_machine(args) -> int:
    """Print a line per check. Returns the exit code: 1 if one of them fails on any rank."""
    report = Report()
    report(Check("versions", host.versions, host.INSTALL))
    report(Check("locale", host.encoding, "export LC_ALL=C.UTF-8"))
    report(Check("open files", host.open_files, "ulimit -Hn 65536 as root"))
    report(Check("shared memory", partial(host.shared_memory, ranks=ranks_here()), "one rank"))
    if report(Check("libraries", load_libraries, host.INSTALL)):  # else nothing below can be loaded
        try:
            check_run(args, report)
        except RunError as error:  # from a gather of findings
            gone = failed(str(error), "its own line says why, or the log of its node")
            report(Check("ranks", lambda: gone, ""))
    return report.end()


def load_libraries() -> Finding:
    torch, _ = import_module("torch"), import_module("run.doctor.device")
    return passed(f"torch {torch.__version__} and transformers can be imported")


def check_run(args, report: Report) -> None:
    """Check the GPU, the room for a run, and what a run computes."""
    import torch

    from common.nvidia_smi import ask_driver
    from ppo.distributed import make_ranks
    from run.doctor import machine
    from run.doctor.device import Device

    report(Check("driver", lambda: machine.driver(ask_driver()), host.INSTALL))
    report(Check("capability", machine.capability, CPU))
    compiler = partial(host.compiler, torch.cuda.is_available())
    report(Check("C compiler", compiler, "--engine transformers"))
    report(Check("memory", lambda: machine.memory(args), MODEL))
    report(Check("disk", lambda: machine.disk(args), MODEL))
    device = Device(args)
    if not report(Check("device", lambda: device.begin(make_ranks(args.zero_stage)), CPU)):
        return
    for name, function, remedy in (
        ("ranks", device.together, "NCCL_DEBUG=INFO says why; or one rank"),
        ("packed rows", device.packed, "--rows padded"),
        ("optimizer step", device.step, CPU),
        ("engine start", device.start, ENGINE),
        ("engine push", device.push, ENGINE),
        ("engine sleep", device.sleep, ENGINE),
        ("engine wake, push", device.wake, ENGINE),
    ):
        report(Check(name, function, remedy), device.ranks)
