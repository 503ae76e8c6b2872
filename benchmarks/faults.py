"""Interrupts runs as a bad day of a cluster would, and compares them with undisturbed ones.

    python -m benchmarks.faults [--faults 288]

A day has a fault every five minutes: 288. Half of them are kills; the others are signals, full
disks and, where a run has environment workers, deaths of workers. They come at random moments of
small runs of five kinds. Each run goes on with `--resume` and is compared when it is finished:
logs, weights and names of files must be equal, bit for bit. A worker's death costs its episodes, so
such a run must have the same numbers of updates and turns. Linux only.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.common import Stopwatch
from common.cli import Parser
from common.signals import ENDING
from recipes import TINY

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from interrupted_runs import KILL, KINDS, request  # noqa: E402

FULL, WORKER = "full disk", "worker"  # the others are numbers of signals


def day(kind: str, count: int) -> list[tuple[int | str, float]]:
    """Return the faults of a kind of run: what happens, and when, as a share of a whole run."""
    rng = random.Random(kind)
    others = [int(number) for number in ENDING] + [FULL] * 3
    others += [WORKER] * 4 if kind == "workers" else []
    chosen = [KILL if k % 2 else rng.choice(others) for k in range(count)]
    return [(how, rng.random()) for how in chosen]


def interrupted(kind: str, count: int) -> list[dict]:
    """Let the driver of the tests interrupt runs of this kind; return what it tells."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", request(kind, Path(folder), TINY, day(kind, count))]
        command = [sys.executable, str(TESTS / "interruptions.py"), *words]
        done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{kind}: the driver ended with code {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def row(kind: str, lines: list[dict], seconds: float) -> list:
    """Return the cells of a row: how many faults of each sort, runs, and what went wrong."""
    faults = [line for line in lines if "code" in line][:-1]  # the last process is left alone
    how = Counter(line["how"] for line in faults)
    signals = sum(how[number] for number in ENDING)
    runs = sum("compared" in line for line in lines)
    wrong = [line for line in lines if line.get("output") or "differs" in line]
    for line in wrong:
        print(json.dumps(line), file=sys.stderr)
    return [kind, how[KILL], signals, how[FULL], how[WORKER], runs, len(wrong), f"{seconds:.0f}"]


def main() -> None:
    parser = Parser("benchmarks.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=288, help="number of faults")
    count = parser.parse_args().faults
    print("| runs | kills | signals | full disks | workers killed | compared | wrong | seconds |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    wrong = 0
    for n, kind in enumerate(KINDS):
        with Stopwatch() as took:
            lines = interrupted(kind, count // len(KINDS) + (n < count % len(KINDS)))
        cells = row(kind, lines, took.seconds)
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
        wrong += cells[6]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
