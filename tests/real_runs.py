"""Runs as processes of their own, the files of a run, and the state that it has saved."""

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
CLOCK = ("time/",)  # figures that a clock made


def load_checkpoint(run: Path) -> dict | None:
    """The newest whole checkpoint; None if there is none yet. ValueError: as `newest`"""
    folder = newest(run)
    return None if folder is None else read(folder)


def contents(folder: Path) -> dict[Path, bytes]:
    """All files but the lock, and but TensorBoard's, which a thread writes some time later."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
    return {path: path.read_bytes() for path in paths if not path.name.startswith("events.")}


@cache
def server(**at_start: str) -> socket.socket:
    """Where `forking.py` takes its requests: a process of it for each process of pytest, and for
    each set of variables that Python obeys only `at_start`."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, ROOT / "tests" / "forking.py", str(theirs.fileno())]
    process = subprocess.Popen(
        command, pass_fds=[theirs.fileno()], start_new_session=True, stdin=subprocess.DEVNULL,
        cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"} | at_start | {"PYTHONPATH": ""},
    )  # fmt: skip
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # this comes first, and ends it
    return ours


class Forked:
    """What tests use of subprocess.Popen, for a command that `forking.py` runs in a process, or
    ranks that it runs in several.

    command: as after `python`; errors: a file for them, or they go where `out` goes
    out: a file; without one the output is read from `stdout`
    at_start: variables that Python obeys only when it starts
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
        self.told = [
            self._ask(request | dict(environment=environment | place), output)
            for place in (places(ranks) if ranks else [{}])
        ]
        if not out:
            os.close(writing)
        self.pids = [int(told.readline()) for told in self.told]
        self.pid, self.returncode = self.pids[0], None

    def _ask(self, request: dict, output: list[int]):
        """Returns where the id of the new process is told, and later how it has ended."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self.server, [json.dumps(request).encode()], [theirs.fileno(), *output])
            return ours.makefile()

    def send_signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)

    def poll(self) -> int | None:
        if all(select.select([told], [], [], 0)[0] for told in self.told):
            self.wait()
        return self.returncode

    def wait(self, timeout: float = 900) -> int:
        """What is there after `timeout` seconds is killed. Of ranks, the first error counts."""
        if self.returncode is None:
            timer = threading.Timer(timeout, self._kill)
            timer.start()
            codes = [int(told.readline()) for told in self.told]
            timer.cancel()
            self.returncode = next((code for code in codes if code), 0)
        return self.returncode

    def communicate(self, timeout: float = 900) -> tuple[str, None]:
        timer = threading.Timer(timeout, self._kill)
        timer.start()
        said = self.stdout.read()
        timer.cancel()
        self.wait(timeout)
        return said, None

    def _kill(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def places(ranks: int) -> list[dict[str, str]]:
    """What a launcher tells each rank. Their port is none that the system gives to others."""
    for port in range(20000 + 2 * os.getpid() % 10000, 32768):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            break
    shared = dict(WORLD_SIZE=str(ranks), MASTER_ADDR="localhost", MASTER_PORT=str(port))
    return [shared | dict(RANK=str(k), LOCAL_RANK=str(k)) for k in range(ranks)]


def launch(folder: Path, *words: str, ranks: int = 0) -> Forked:
    """main.py in `folder`; what it says is read from `stdout`."""
    return Forked(
        ["-u", ROOT / "main.py", *words], folder, ranks=ranks, TURNS=str(folder / "turns")
    )


def run(command, folder: Path = ROOT, **options) -> subprocess.CompletedProcess:
    """What `subprocess.run` would say of a command. options: as `Forked`"""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
        process = Forked(command, folder, out, errors, **options)
        process.wait()
        said = [(file.seek(0), file.read())[1] for file in (out, errors)]
    return subprocess.CompletedProcess(command, process.returncode, *said)


def start(folder: Path, *words: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen:
    """main.py by an interpreter of its own, as a user starts it, or by the user's launcher."""
    return subprocess.Popen(
        [sys.executable, "-u", *launcher, str(ROOT / "main.py"), *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TURNS": str(folder / "turns")},
        start_new_session=True,
    )  # fmt: skip


def wait_for(process: Forked | subprocess.Popen, words: str) -> None:
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")
