"""Rehearses a run on two nodes: two torchrun agents on this machine, each with its own address.

    python -m benchmarks.nodes               70 s of CPU time
    python -m benchmarks.nodes --die 0       kills the first node, which holds the meeting point

One node with two ranks trains first. Then two nodes of one rank each start the same run, and one of
them is killed, agent and all, as by a power cut. The other one has to end within seconds, with a
line. Both start again with the same command, and the finished run has to be the first one's. The
exit code is 1 if one of this fails. A real network, and firewalls, are left out.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from common.cli import Parser

ROOT = Path(__file__).resolve().parents[1]
ADDRESSES = ("127.0.0.1", "127.0.0.2")  # Linux answers on all of 127.0.0.0/8
PORT = 29517
UPDATES, KILLED_AFTER = 4, 2
FLAGS = [
    "--env-name", "toy", "--model", str(ROOT / "models" / "tiny"), "--engine", "transformers",
    "--n-env", "4", "--e-len", "2", "--minibatch", "4", "--w-epoch", "0", "--eval-interval", "0",
    "--save-interval", "1", "--num-updates", str(UPDATES), "--resume", "auto", "--run-dir",
]  # fmt: skip
SECONDS = 30.0  # in which a node has to notice that the other one is gone
TIMES = ("time/", "engine/")  # metrics that differ from run to run


def main() -> int:
    parser = Parser("benchmarks.nodes", description=__doc__.splitlines()[0])
    parser.add_argument("--die", type=int, choices=(0, 1), default=1, help="the node that dies")
    dies = parser.parse_args().die
    with TemporaryDirectory() as folder:
        alone, both = Path(folder) / "alone", Path(folder) / "both"
        one = start(["--standalone", "--nproc-per-node", "2"], alone)
        if one.wait():
            print(one.stdout.read())
            return 1
        print(f"one node of two ranks: {UPDATES} updates")
        lines = kill_one(both, dies)
        print("\n".join(lines) or "the other node ended without a line")
        ends = [node.wait() for node in start_nodes(both)]
        same = metrics(both) == metrics(alone)
        print(
            f"the same command on both nodes again: exit codes {ends}, metrics of one node: {same}"
        )
    return 0 if lines and same and not any(ends) else 1


def start(launcher: list[str], run: Path) -> subprocess.Popen:
    """Start an agent, in a process group of its own, whose output is one stream."""
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *launcher, "main.py", *FLAGS, str(run)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        start_new_session=True,
    )


def start_nodes(run: Path) -> list[subprocess.Popen]:
    shared = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "1"]
    shared += ["--rdzv-endpoint", f"{ADDRESSES[0]}:{PORT}"]
    return [start([*shared, "--local-addr", address], run) for address in ADDRESSES]


def kill_one(run: Path, dies: int) -> list[str]:
    """Kill a node after some updates. Returns what the other one said about it; [] if it had to be
    killed, too."""
    nodes = start_nodes(run)
    log = run / "metrics.jsonl"
    while not log.exists() or len(log.read_text(encoding="utf-8").splitlines()) < KILLED_AFTER:
        if any(node.poll() is not None for node in nodes):
            return []
        time.sleep(0.1)
    began = time.perf_counter()
    kill(nodes[dies])
    left = nodes[1 - dies]
    try:
        output, _ = left.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        kill(left)
        return []
    print(f"node {dies} was killed: the other one ended in {time.perf_counter() - began:.1f} s")
    return [line for line in output.splitlines() if "another rank has ended" in line]


def kill(agent: subprocess.Popen) -> None:
    """Kill an agent and the ranks that it has started; each has a session of its own."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text(encoding="utf-8")
    for pid in (agent.pid, *map(int, children.split())):
        os.kill(pid, signal.SIGKILL)


def metrics(run: Path) -> list[dict]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{name: round(value, 4) for name, value in json.loads(line).items()
             if value is not None and not name.startswith(TIMES)} for line in lines]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
