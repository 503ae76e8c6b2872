"""The run directory: its name, and the process that owns it.

`run.describe` writes args.json, `run.logger` the logs, `run.checkpoint` checkpoints/ and model/.
"""

import argparse
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from common.errors import RunError
from common.plugins import UserError
from common.ranks import Ranks
from run.earlier import args_file
from run.files import NO_ROOM, cannot_write
from run.lock import LOCK, is_unused, locked

LONGEST_NAME = 100  # characters of an environment's name in that of a directory


@contextmanager
def claimed_run_dir(args: argparse.Namespace, ranks: Ranks) -> Iterator[Path]:
    """`with claimed_run_dir(args, ranks) as run:` no other process uses the directory `run`.

    Rank 0 makes the directory and holds its lock; all ranks get the path, or the same error. A new
    directory is removed at the end if nothing was written into it.
    ValueError: the directory is in use or not empty, or it cannot be made
    RunError: the disk is full, or a permission is missing, now or later in the block
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
            if error.errno in NO_ROOM:  # an error of `write` has no file name
                raise cannot_write(Path(error.filename or claim), error) from error
            raise


@contextmanager
def claimed(args: argparse.Namespace) -> Iterator[Path]:
    """`claimed_run_dir` of rank 0."""
    run, made = (args.run_dir, []) if args.resume else make_directory(args)
    try:
        if not (args.resume or is_unused(run) or (run / LOCK).exists()):
            raise not_empty(run)
        with locked(run):  # first: its error names the process that uses the run
            if not (args.resume or is_unused(run)):
                raise not_empty(run)
            yield run
    finally:
        remove_empty(made)


def make_directory(args: argparse.Namespace) -> tuple[Path, list[Path]]:
    """Make --run-dir, or a new directory in runs/. Returns it, and all directories that were made.

    A name in runs/ that is taken gets -2, -3, ...: two runs may begin in the same second.
    """
    env = re.sub(r"[^\w.-]+", ".", args.env_name.replace("*", "all"))[:LONGEST_NAME]
    name = Path("runs") / f"{env}-seed{args.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
        except OSError:  # it is not empty, or was never made
            return


def not_empty(run: Path) -> UserError:
    if args_file(run) is None:
        return UserError(f"{run} is not empty, and there is no run in it; name another --run-dir")
    resume = f"--resume {shlex.quote(str(run))}"
    return UserError(f"{run} is not empty; go on from it with {resume}, or name another --run-dir")
