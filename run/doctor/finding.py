"""What a check of `turnwise doctor` finds, and the line that it prints."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from common.errors import RunError, reason_of, typed_reason_of
from common.plugins import UserError

SLOW = 1.0  # seconds of a check that its line tells


@dataclass(frozen=True)
class Finding:
    """mark: pass, FAIL or skip; found: what is there; remedy: what to do after a FAIL"""

    mark: str
    found: str
    remedy: str = ""


def passed(found: str) -> Finding:
    return Finding("pass", found)


def failed(found: str, remedy: str) -> Finding:
    return Finding("FAIL", found, remedy)


def skipped(found: str) -> Finding:
    return Finding("skip", found)


def judged(passes: bool, found: str, remedy: str) -> Finding:
    """remedy: what to do if it does not pass"""
    return passed(found) if passes else failed(found, remedy)


@dataclass(frozen=True)
class Check:
    """name: of the line; function: returns a Finding; remedy: what to do if it raises an error"""

    name: str
    function: Callable[[], Finding]
    remedy: str


def examine(check: Check) -> tuple[Finding, float]:
    """Return what the check finds and the seconds that it took. An error is a failure."""
    began = time.perf_counter()
    try:
        finding = check.function()
    except (RunError, UserError) as error:  # its line is ours
        finding = failed(reason_of(error), check.remedy)
    except (Exception, SystemExit) as error:  # libraries fail in many ways where they do not fit
        finding = failed(typed_reason_of(error), check.remedy)
    return finding, time.perf_counter() - began


def line_of(name: str, finding: Finding, seconds: float = 0.0) -> str:
    took = f" ({seconds:.1f} s)" if seconds > SLOW else ""
    remedy = f"; remedy: {finding.remedy}" if finding.mark == "FAIL" else ""
    return f"{finding.mark}  {name:<18} {finding.found}{took}{remedy}"
