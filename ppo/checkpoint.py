"""The run directory: args.json, checkpoints/ (training state) and model/ (a Hugging Face model).

A checkpoint is written aside and renamed, so that an interrupted save leaves the one before whole.
Checkpoints load with weights_only: nothing in them is executed.
"""

import argparse
import json
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("torch", "transformers", "gymnasium", "minigrid", "crafter", "numpy", "vllm")


def choose_run_dir(args: argparse.Namespace) -> Path:
    """--run-dir or a new name; ValueError if it holds something and is not resumed."""
    name = f"{args.env_name.replace(':', '.')}-{time.strftime('%Y%m%d-%H%M%S')}"
    run = args.run_dir or Path("runs") / name
    if args.resume is None and run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ValueError(
            f"{run} is not empty; go on from it with --resume {run}, or name another --run-dir"
        )
    return run


def start_run_dir(run: Path, args: argparse.Namespace) -> None:
    """Create the directory and write args.json; ValueError if it cannot be written."""
    try:
        run.mkdir(parents=True, exist_ok=True)
        if args.resume is None:
            about = json.dumps(describe_run(args), indent=1, default=str)
            (run / "args.json").write_text(about + "\n")
    except OSError as error:
        raise ValueError(f"cannot write to {run}: {error.strerror}") from error


def describe_run(args: argparse.Namespace) -> dict:
    versions = {"python": platform.python_version()}
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


def save_checkpoint(run: Path, state: dict) -> None:
    """state: tensors, numbers and containers of them; state["update"] names the file."""
    folder = run / "checkpoints"
    folder.mkdir(exist_ok=True)
    path = folder / f"update-{state['update']:06d}.pt"
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)


def load_checkpoint(run: Path) -> dict:
    """The newest checkpoint; ValueError if there is none."""
    paths = sorted((run / "checkpoints").glob("update-*.pt"))
    if not paths:
        raise ValueError(f"--resume {run}: it has no checkpoint yet")
    return torch.load(paths[-1], map_location="cpu", weights_only=True)


def save_model(run: Path, lm, tokenizer) -> None:
    """model/: what AutoModelForCausalLM, AutoTokenizer and vLLM load as it is."""
    lm.save_pretrained(run / "model")
    tokenizer.save_pretrained(run / "model")
