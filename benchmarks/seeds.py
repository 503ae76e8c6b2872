"""Times main.py with one seed alone, and with three seeds at the same time.

    python -m benchmarks.seeds                         with vLLM, about three minutes on two cores
    python -m benchmarks.seeds --engine transformers

Without --threads no thread variable is set. A round times one process, then three that start
together. The first update of each process is left out because it is slower, and the last because
the other processes may have ended by then. Each figure is the minimum over all rounds, because
other work on the machine can only increase it.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from common.cli import Parser
from common.processors import processors

ROOT = Path(__file__).resolve().parents[1]
FLAGS = [
    "--env-name", "babyai-goto", "--model", "models/tiny", "--n-env", "16", "--e-len", "8",
    "--minibatch", "64", "--w-epoch", "0", "--eval-interval", "0", "--save-interval", "1000",
]  # fmt: skip


def main() -> None:
    parser = Parser("benchmarks.seeds", description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="vllm", help="engine of the runs")
    parser.add_argument("--updates", type=int, default=4, help="updates of each run, at least 3")
    parser.add_argument("--threads", help="OMP_NUM_THREADS; default: the program chooses")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    args = parser.parse_args()
    if args.updates < 3:
        parser.error("--updates must be at least 3, because the first and the last are left out")
    cores = processors()
    alone = together = float("inf")
    for _ in range(args.rounds):
        alone = min(alone, update_seconds(1, args.engine, args.updates, args.threads))
        together = min(together, update_seconds(3, args.engine, args.updates, args.threads))
        print(f"so far {alone:.2f} and {together:.2f} s", flush=True)
    ideal = max(1, 3 / cores)
    print(f"{args.engine}, {cores} cores: seconds per update")
    print(f"one seed {alone:.2f}, three at a time {together:.2f}: {together / alone:.2f}x")
    print(f"three processes with one core's work each would take at least {ideal:.2f}x")


def update_seconds(count: int, engine: str, updates: int, threads: str | None) -> float:
    """Start `count` runs at the same time. Returns the median seconds per update."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    env |= {"OMP_NUM_THREADS": threads} if threads else {}
    with TemporaryDirectory() as folder:
        runs = [Path(folder) / str(seed) for seed in range(count)]
        flags = [*FLAGS, "--engine", engine, "--num-updates", str(updates)]
        processes = [
            subprocess.Popen(
                [sys.executable, "main.py", *flags, "--seed", run.name, "--run-dir", str(run)],
                cwd=ROOT, env=env, stdout=subprocess.DEVNULL,
            )
            for run in runs
        ]  # fmt: skip
        codes = [process.wait() for process in processes]
        assert not any(codes), f"exit codes {codes}"
        return statistics.median(seconds for run in runs for seconds in run_seconds(run))


def run_seconds(run: Path) -> list[float]:
    """Return the seconds of each update of a run except the first and the last."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["time/total"] for line in lines[1:-1]]


if __name__ == "__main__":
    main()
