"""The run directory: its name, args.json, and the logs, which a resumed run cuts back.

`ppo.run.logger` writes the logs, `ppo.run.checkpoint` writes checkpoints/ and model/.
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

LOGS = ("metrics", "warmup", "eval", "trajectories", "faults")  # .jsonl files
PACKAGES = ("transformers", "gymnasium", "minigrid", "crafter", "numpy", "vllm")


def choose_run_dir(args: argparse.Namespace, ranks: Ranks) -> Path:
    """Return --run-dir, or a new name. ValueError: the directory is in use and not resumed."""
    name = f"{args.env_name.replace(':', '.')}-{time.strftime('%Y%m%d-%H%M%S')}"
    run = ranks.first(args.run_dir or Path("runs") / name)
    if args.resume is None and run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ValueError(
            f"{run} is not empty; go on from it with --resume {run}, or name another --run-dir"
        )
    return run


def start_run_dir(run: Path, args: argparse.Namespace, saved: dict | None, ranks: Ranks) -> None:
    """Create the directory and write args.json. A resumed run's logs are cut back, too.

    saved: the checkpoint that a resumed run goes on from, with the length of each log at that time
    ValueError: the directory cannot be written, or a log is shorter than it was at the checkpoint;
        then nothing is cut
    """
    ranks.wait()  # all ranks have looked at the directory before rank 0 changes it
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
    # torch.__version__ also names the build, which the version of its package leaves out.
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    return {"args": vars(args), "git": git_commit(), "versions": versions}


def git_commit() -> str | None:
    """The commit of this code, with -dirty if it was edited since; None outside a checkout."""
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
