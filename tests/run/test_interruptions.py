"""Runs and saves that are interrupted at many moments end as if nobody had interrupted them.

`tests/interruptions.py` does the work, in processes of its own. By default each kind of run is
stopped once. With TURNWISE_INTERRUPTIONS=60 each is stopped 60 times, at other moments; with
TURNWISE_INTERRUPTIONS=all before each operation and phase of a run, which takes an hour.
"""

import json
import os
import random
from itertools import product

import pytest
from real_runs import ROOT, run

from common.signals import ENDING

SMALL = """--n-env 2 --e-len 2 --num-updates 3 --minibatch 4 --lr 0.01 --response-limit 6
--prompt-limit 8192 --save-interval 1 --eval-interval 2 --eval-episodes 2 --engine transformers"""
WARM = "--w-epoch 1 --w-iter 1 --w-fraction 1"
AGENT = "--env-name agent:agent_programs:echo --memory verbatim --n-env 2"
KINDS = {  # name -> flags
    "turns": f"--env-name toy {WARM} --max-episode-steps 3",
    "groups": "--env-name toy --advantages grpo --group-size 2 --max-episode-steps 2",
    "lora": f"--env-name toy {WARM} --lora-rank 2 --max-episode-steps 3",
    "agents": f"{AGENT} {WARM}",
    "workers": f"--env-name toy {WARM} --max-episode-steps 3 --env-workers 2",
}
# Which worker answers first decides what the engine batches together, and so its rounding.
WITHOUT = {"workers": ["engine/"]}
KILL = 9
STOPS = os.environ.get("TURNWISE_INTERRUPTIONS", "1")
EVENTS = 300  # more than any of these runs has


def told(*words: str) -> list[dict]:
    """Return what `interruptions.py` prints."""
    script = ROOT / "tests" / "interruptions.py"
    ended = run([script, *words], ROOT / "tests")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def moments(kind: str) -> list[tuple[int, float]]:
    """Return pairs (signal, share of the events of a run before it), in a random order."""
    rng = random.Random(f"{kind} {STOPS}")
    if STOPS == "all":
        shares = [k / EVENTS for k in range(EVENTS)]
        return [*product([KILL], shares), *product(map(int, ENDING), shares[::5])]
    stops = int(STOPS)
    shares = [(k + rng.random()) / stops for k in range(stops)]
    rng.shuffle(shares)
    numbers = [int(rng.choice(ENDING)) if k % 2 else KILL for k in range(stops)]
    return list(zip(numbers, shares, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_ends_as_if_it_had_not_been(kind, model_dir, tmp_path):
    flags = [*SMALL.split(), *KINDS[kind].split(), "--model", model_dir]
    request = dict(folder=str(tmp_path), flags=flags, without=WITHOUT.get(kind, []))
    first, *lines = told("run", json.dumps(request | {"stops": moments(kind)}))
    stops = [line for line in lines if "code" in line]
    assert first["moments"] < EVENTS and len(stops) == len(moments(kind)) + 1
    assert not [line for line in lines if line.get("output") or "differs" in line]
    assert stops[-1]["code"] == 0 and [line for line in stops if line["code"] == -KILL]


def test_a_save_may_be_killed_before_each_of_its_operations(tmp_path):
    *killed, last = told("save", str(tmp_path))
    assert len(killed) > 20 and last["code"] == 0
    for line in killed:  # what is left is whole, and model/ is at most one save behind it
        assert (line["code"], line["strays"]) == (-KILL, []), line
        assert line["checkpoints"] in ([1], [2]), line
        assert line["model"] in (1, line["checkpoints"][-1]), line
    assert killed[0]["checkpoints"] == [1] and last["checkpoints"] == [2]
