"""Makes 500 updates on the toy environment and shows whether anything grows. Linux only.

    python -m benchmarks.soak [--updates 500]

The run has two environment workers. Every 50 updates this program reads memory (the anonymous part
of the proportional set size), file descriptors and processes from /proc. It compares them with the
first reading, after update 60: by then the run has saved and evaluated twice.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import proc_bytes
from common.cli import Parser

EVERY, OFFSET = 50, 10  # avoids evaluations, at multiples of 25, which have workers of their own
COMMAND = [
    "main.py", "--env-name", "toy", "--env-workers", "2", "--n-env", "4", "--e-len", "2",
    "--minibatch", "8", "--w-epoch", "1", "--w-iter", "1", "--response-limit", "8",
    "--save-interval", "25", "--eval-interval", "25", "--eval-episodes", "4",
    "--model", "models/tiny", "--engine", "transformers",
]  # fmt: skip


def main() -> None:
    parser = Parser("benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=500, help="number of updates to make")
    updates = parser.parse_args().updates
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, *COMMAND, "--run-dir", str(run)]
        command += ["--num-updates", str(updates)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        readings = {}
        while process.poll() is None:
            done = count_lines(run / "metrics.jsonl")
            if done > EVERY and done % EVERY == OFFSET and done not in readings:
                readings[done] = read(process.pid)
                print_row(done, readings)
            time.sleep(0.05)
    if process.returncode:
        sys.exit(f"the run ended with code {process.returncode}")


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def read(pid: int) -> dict[str, float]:
    """Return the MB of the main process and of its workers, and all their files and processes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    workers = [int(child) for child in children.split()]
    files = [len(list(Path(f"/proc/{p}/fd").iterdir())) for p in (pid, *workers)]
    return {
        "main MB": anonymous_mb(pid),
        "workers MB": sum(map(anonymous_mb, workers)),
        "files": sum(files),
        "processes": 1 + len(workers),
    }


def anonymous_mb(pid: int) -> float:
    """Return the MB of anonymous memory: the kernel may drop pages of files at any time."""
    return proc_bytes("Pss_Anon", f"/proc/{pid}/smaps_rollup") / 2**20


def print_row(update: int, readings: dict[int, dict]) -> None:
    first, now = next(iter(readings.values())), readings[update]
    if len(readings) == 1:
        print("update" + "".join(f"{name:>20}" for name in now))
    cells = [f"{now[name]:.1f} ({now[name] / first[name] - 1:+.1%})" for name in now]
    print(f"{update:6d}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
