"""Starts runs in processes of their own, and reads their files and checkpoints."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

from run.saved import newest, read

ROOT = Path(__file__).resolve().parents[1]
CLOCK = ("time/",)  # prefixes of metrics that differ from run to run


def load_checkpoint(run: Path) -> dict | None:
    """Load the newest intact checkpoint; None if there is none yet. ValueError: see `newest`"""
    folder = newest(run)
    return None if folder is None else read(folder)


def contents(folder: Path) -> dict[Path, bytes]:
    """Read all files except the lock and TensorBoard's, which a thread writes later."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {path: path.read_bytes() for path in paths if not path.name.startswith("events.")}


@cache
def server(**at_start: str) -> socket.socket:
    """Start `forking.py` and return the socket for requests to it.

    Each process of pytest has one server for each set of variables that Python reads only at its
    start (`at_start`).
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, ROOT / "tests" / "forking.py", str(theirs.fileno())]
    process = subprocess.Popen(
        command,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | at_start | {"PYTHONPATH": ""},
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # runs before process.wait, and ends the server
    return ours


class Forked:
    """The part of subprocess.Popen that tests use, for a command that `forking.py` runs.

    command: the words after `python`
    out: a file for the output; without one it can be read from `stdout`
    errors: a file for the standard error; without one it goes to the output
    ranks: the number of processes that run the command; 0: one process without a launcher
    at_start: environment variables that Python reads only at its start
    """

    def __init__(
        self, command, folder, out=None, errors=None, ranks=0, at_start=(), **environment: str
    ):
        self.server = server(**dict(at_start))
        reading, writing = (None, out.fileno()) if out else os.pipe()
        self.stdout = None if out else open(reading)
        output = [writing, errors.fileno() if errors else writing]
        request = dict(command=[str(word) for word in command], folder=str(folder))
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
        self.statuses = [
            self._ask(request | dict(environment=environment | variables), output)
            for variables in (rank_variables(ranks) if ranks else [{}])
        ]
        if not out:
            os.close(writing)
        self.pids = [int(status.readline()) for status in self.statuses]
        self.pid, self.returncode = self.pids[0], None

    def _ask(self, request: dict, output: list[int]):
        """Return a file with two lines: the id of the new process and, later, its exit code."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self.server, [json.dumps(request).encode()], [theirs.fileno(), *output])
            return ours.makefile()

    def send_signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def poll(self) -> int | None:
        if all(select.select([status], [], [], 0)[0] for status in self.statuses):
            self.wait()
        return self.returncode

    def wait(self, timeout: float = 900) -> int:
        """Return the exit code; of several ranks, the first that is not 0. Processes that have not
        ended after `timeout` seconds are killed."""
        if self.returncode is None:
            timer = threading.Timer(timeout, self._kill)
            timer.start()
            codes = [int(status.readline()) for status in self.statuses]
            timer.cancel()
            self.returncode = next((code for code in codes if code), 0)
        return self.returncode

    def communicate(self, timeout: float = 900) -> tuple[str, None]:
        timer = threading.Timer(timeout, self._kill)
        timer.start()
        output = self.stdout.read()
        timer.cancel()
        self.wait(timeout)
        return output, None

    def _kill(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def rank_variables(ranks: int) -> list[dict[str, str]]:
    """Return a launcher's environment variables for each rank.

    The port is free, and below the range from which the system chooses ports.
    """
    for port in range(20000 + 2 * os.getpid() % 10000, 32768):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            break
    shared = dict(WORLD_SIZE=str(ranks), MASTER_ADDR="localhost", MASTER_PORT=str(port))
    return [shared | dict(RANK=str(k), LOCAL_RANK=str(k)) for k in range(ranks)]


def launch(folder: Path, *words: str, ranks: int = 0) -> Forked:
    """Start main.py in `folder`; its output can be read from `stdout`."""
    return Forked(
        ["-u", ROOT / "main.py", *words], folder, ranks=ranks, TURNS=str(folder / "turns")
    )


def run(
    command, folder: Path = ROOT, timeout: float = 900, **options
) -> subprocess.CompletedProcess:
    """Do what `subprocess.run` does, by `Forked`. options: those of `Forked`"""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
        process = Forked(command, folder, out, errors, **options)
        process.wait(timeout)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(
            command, process.returncode, stdout=out.read(), stderr=errors.read()
        )


def start(folder: Path, *words: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen:
    """Start main.py in a new interpreter, as users do, or by a launcher."""
    return subprocess.Popen(
        [sys.executable, "-u", *launcher, str(ROOT / "main.py"), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TURNS": str(folder / "turns")},
        start_new_session=True,
    )


def wait_for(process: Forked | subprocess.Popen, words: str) -> None:
    """Read the output until a line contains `words`."""
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")
