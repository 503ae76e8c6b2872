"""The run directory: its name, args.json, and the logs, which a resumed run cuts back.

What the logs hold is written by `ppo.run.logger`, checkpoints/ and model/ by `ppo.run.checkpoint`.
"""

import argparse
import json
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from storage.ranks import Ranks

LOGS = ("metrics", "warmup", "eval", "trajectories", "faults")  # .jsonl, cut back by a resume
PACKAGES = ("transformers", "gymnasium", "minigrid", "crafter", "numpy", "vllm")


def choose_run_dir(args: argparse.Namespace, ranks: Ranks) -> Path:
    """--run-dir or a new name; ValueError if it holds something and is not resumed."""
    name = f"{args.env_name.replace(':', '.')}-{time.strftime('%Y%m%d-%H%M%S')}"
    run = ranks.first(args.run_dir or Path("runs") / name)
    if args.resume is None and run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ValueError(
            f"{run} is not empty; go on from it with --resume {run}, or name another --run-dir"
        )
    return run


def start_run_dir(run: Path, args: argparse.Namespace, saved: dict | None, ranks: Ranks) -> None:
    """Create the directory and write args.json, on the first rank; of a resumed run, cut the logs
    back to where they were at its checkpoint (None: it has none yet). ValueError: it cannot be
    written, or a log is shorter than it was, and then nothing is cut."""
    ranks.wait()  # until all have seen what was there
    if ranks.rank:
        return
    if args.resume and not args.eval_only:
        cut_back(run, saved["logs"] if saved else {})
    try:
        run.mkdir(parents=True, exist_ok=True)
        if args.resume is None or args.override:
            about = json.dumps(describe_run(args), indent=1, default=str)
            (run / "args.json").write_text(about + "\n")
    except OSError as error:
        raise ValueError(f"cannot write to {run}: {error.strerror}") from error


def describe_run(args: argparse.Namespace) -> dict:
    # torch says what it was built for, too, which its package's version leaves out
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    return {"args": vars(args), "git": git_commit(), "versions": versions}


def git_commit() -> str | None:
    """Of this code, with -dirty where it was edited since; None outside a checkout."""
    words = "describe --always --dirty --abbrev=40 --exclude=*".split()
    try:
        git = subprocess.run(
            ["git", "-C", Path(__file__).parent, *words], capture_output=True, text=True
        )
    except OSError:
        return None
    return git.stdout.strip() or None


def cut_back(run: Path, sizes: dict[str, int]) -> None:
    for path in logs(run):
        if path.stat().st_size < sizes.get(path.name, 0):
            raise ValueError(f"--resume {run}: {path} is shorter than it was at the checkpoint")
    for path in logs(run):
        os.truncate(path, sizes.get(path.name, 0))


def logs(run: Path) -> list[Path]:
    return [path for name in LOGS if (path := run / f"{name}.jsonl").exists()]
