"""Runs and saves that are interrupted at many moments end as if nobody had interrupted them.

`tests/interruptions.py` does the work, in processes of its own. By default each kind of run is
stopped once. With TURNWISE_INTERRUPTIONS=60 each is stopped 60 times, at other moments; with
TURNWISE_INTERRUPTIONS=all before each operation and phase of a run, which takes an hour.
`benchmarks.faults` also kills workers and fills the disk.
"""

import json
import os
import random

import pytest
from interrupted_runs import KILL, KINDS, request
from real_runs import ROOT, run

from common.signals import ENDING

STOPS = os.environ.get("TURNWISE_INTERRUPTIONS", "1")
SECONDS = 86_400  # after which a driver that hangs is killed


def told(*words: str) -> list[dict]:
    """Return what `interruptions.py` prints."""
    script = ROOT / "tests" / "interruptions.py"
    ended = run([script, *words], ROOT / "tests", timeout=SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def stops(kind: str) -> list[tuple[int, float]] | str:
    """Return pairs (signal, share of the events of a run before it), or "all"."""
    if STOPS == "all":
        return STOPS
    rng, n = random.Random(f"{kind} {STOPS}"), int(STOPS)
    shares = [(k + rng.random()) / n for k in range(n)]
    rng.shuffle(shares)
    numbers = [int(rng.choice(ENDING)) if k % 2 else KILL for k in range(n)]
    return list(zip(numbers, shares, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_ends_as_if_it_had_not_been(kind, model_dir, tmp_path):
    lines = told("run", request(kind, tmp_path, model_dir, stops(kind)))
    ends = [line for line in lines if "code" in line]
    assert len(ends) == (1 + len(stops(kind)) if STOPS != "all" else lines[0]["stops"])
    assert not [line for line in lines if line.get("output") or "differs" in line]
    assert ends[-1]["code"] == 0 and [line for line in ends if line["code"] == -KILL]


def test_a_save_may_be_killed_before_each_of_its_operations(tmp_path):
    *killed, last = told("save", str(tmp_path))
    assert len(killed) > 20 and last["code"] == 0
    for line in killed:  # what is left is whole, and model/ is at most one save behind it
        assert (line["code"], line["strays"]) == (-KILL, []), line
        assert line["checkpoints"] in ([1], [2]), line
        assert line["model"] in (1, line["checkpoints"][-1]), line
    assert killed[0]["checkpoints"] == [1] and last["checkpoints"] == [2]
