"""What the NVIDIA driver says of its GPUs, asked without torch."""

import shutil
import subprocess
from typing import NamedTuple

QUERY = ["--query-gpu=name,driver_version", "--format=csv,noheader"]


class Driver(NamedTuple):
    """What nvidia-smi says. gpus: their names; version: of the driver; error: why it says nothing,
    or "" """

    gpus: list[str]
    version: str = ""
    error: str = ""


def ask_driver() -> Driver:
    """Ask nvidia-smi. A machine without this program has no GPUs and no error."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return Driver([])
    try:
        done = subprocess.run([program, *QUERY], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Driver([], error=f"nvidia-smi does not answer ({type(error).__name__})")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = " ".join(f"{done.stdout} {done.stderr}".split())
        return Driver([], error=f"nvidia-smi fails: {said:.200}")
    rows = [line.rpartition(", ") for line in lines]
    return Driver([name for name, _, _ in rows], rows[0][2])
