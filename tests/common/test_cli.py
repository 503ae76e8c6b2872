"""A standard output that cannot be written: one line and an exit code, no traceback."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from run import exit as exits
from run.console import Console

ROOT = Path(__file__).resolve().parents[2]
LINE = "error: cannot write to the standard output: No space left on device\n"
FULL = Path("/dev/full")  # every write to it fails as on a full disk
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="only Linux has /dev/full")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("main.py --help", "main.py"),
        ("-m arguments", "python -m arguments"),
        ("-m reports.viewer --help", "reports.viewer"),
        (". --help", "turnwise"),
        (". recipe", "turnwise recipe"),
    ],
)
def test_a_full_disk_is_one_line(words, name, unbuffered):
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered, "OMP_NUM_THREADS": "1"}
    with open(FULL, "w") as full:
        done = subprocess.run(
            [sys.executable, *words.split()],
            cwd=ROOT,
            env=env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, f"{name}: {LINE}")


def test_a_full_disk_before_a_run_begins_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(exits, "discard_output", lambda: None)  # pytest needs its output
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert exits.exit_code(error) == 1
    assert capsys.readouterr().err == f"main.py: {LINE}"
    with pytest.raises(OSError):  # another file: a bug, for the run catches its own
        exits.exit_code(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file"))


def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "envs"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


SAYS = """
import signal, sys
from run import exit as exits
from run.console import Console
signal.signal(signal.SIGHUP, lambda number, frame: print("saved", file=sys.stderr))
console = Console(1, 0, True)
console.say("update 1")
console.say("update 2")
"""


def test_a_full_disk_ends_a_run_as_a_closed_terminal_does():
    assert Console  # what SAYS imports
    with open(FULL, "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", SAYS], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (0, f"main.py: {LINE}saved\n")
