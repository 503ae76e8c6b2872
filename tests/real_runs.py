"""Runs as processes of their own, the files of a run, and the state that it has saved."""

import os
import subprocess
import sys
from pathlib import Path

from ppo.run.saved import newest, read

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


def launch(folder: Path, *words: str, ranks: int = 0) -> subprocess.Popen:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "TURNS": str(folder / "turns")}
    return subprocess.Popen(
        [sys.executable, "-u", *(launcher if ranks else []), str(ROOT / "main.py"), *words],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def wait_for(process: subprocess.Popen, words: str) -> None:
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended without {words!r}")
