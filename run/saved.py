"""A run's checkpoints on disk: finds the newest intact one, and deletes old ones."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError

import torch

from common.plugins import UserError
from run.files import discard, free_name, sha256

NAMES = "update-*"  # folders in checkpoints/, and what a killed save leaves beside them
NAME = re.compile(r"update-\d{6,}")
MODEL_UPDATE = "update.txt"  # in model/: how many updates the model has had


def checkpoints(run: Path) -> list[Path]:
    """Return the folders of the checkpoints, oldest first."""
    found = (run / "checkpoints").glob(NAMES)
    return sorted((path for path in found if NAME.fullmatch(path.name)), key=number_of)


def number_of(checkpoint: Path) -> int:
    """Return the number of updates before a checkpoint."""
    return int(checkpoint.name.removeprefix("update-"))


def newest(run: Path) -> Path | None:
    """Return the folder of the newest intact checkpoint; None if the run never wrote one.

    ValueError: all checkpoints are damaged, or they have been removed
    """
    for path in reversed(checkpoints(run)):
        if damage := damaged(path):
            print(f"checkpoint {path} is damaged: {damage}")
        else:
            return path
    if checkpoints(run):
        raise UserError(
            f"--resume {run}: none of its checkpoints is whole; put one back, or start a new run "
            "with another --run-dir"
        )
    metrics = run / "metrics.jsonl"
    if (run / "model").exists() or metrics.exists() and metrics.stat().st_size:
        raise UserError(
            f"--resume {run}: it has been trained, but nothing is in {run / 'checkpoints'}; "
            "put its checkpoints back, or start a new run with another --run-dir"
        )
    return None


def read(folder: Path) -> dict:
    """Load the state of a checkpoint to the CPU. ValueError: it contains pickled code"""
    try:
        state = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(
            f"{folder / 'state.pt'} holds more than weights and settings; it is not loaded"
        ) from error
    return state | {"agent": state["agent"] | {"folder": folder}}


def damaged(path: Path) -> str | None:
    """Return what is wrong with a checkpoint; None if it is intact."""
    try:
        lines = (path / "SHA256SUMS").read_text(encoding="utf-8").removesuffix("\n")
        sums = [line.split("  ", 1) for line in lines.split("\n")]
        wrong = [name for digest, name in sums if sha256(path / name) != digest]
        if "state.pt" not in [name for _, name in sums]:
            return "SHA256SUMS is not a list of checksums"
        return f"the checksum of {wrong[0]} is wrong" if wrong else None
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except ValueError:
        return "SHA256SUMS is not a list of checksums"


def set_damaged_aside(run: Path, whole: Path) -> None:
    """Rename the checkpoints newer than `whole`, the newest intact one: they are damaged."""
    for path in checkpoints(run):
        if number_of(path) > number_of(whole):
            try:
                path.rename(free_name(path, ".damaged"))
            except OSError as error:
                print(f"cannot rename {path}: {error.strerror}; the run goes on")


def delete_old(run: Path, keep: int, whole: set[Path]) -> None:
    """Delete all checkpoints older than the `keep` newest intact ones.

    whole: checkpoints already known to be intact, which are not read again; this adds to it
    """
    kept, found = 0, checkpoints(run)
    for path in reversed(found) if len(found) > keep else ():
        if kept == keep:
            discard(path)
        elif path in whole or damaged(path) is None:
            whole.add(path)
            kept += 1


def model_update(run: Path) -> int | None:
    """Return how many updates the model in model/ has had; None if this is unknown."""
    try:
        return int((run / "model" / MODEL_UPDATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def turns_made(run: Path, update: int) -> int:
    """Return the number of turns trained on in the first `update` updates; 0 if it is unknown."""
    try:
        records = _newest_first(run / "metrics.jsonl")
        return next(record["turns"] for record in records if record["update"] == update)
    except (OSError, StopIteration, ValueError, KeyError, TypeError):
        return 0


def is_complete(update: int, turns: int, args) -> bool:
    """Return whether a run is complete after `update` updates with `turns` turns in all."""
    return update == args.num_updates or args.num_turns is not None and turns >= args.num_turns


def last_evaluation(run: Path) -> int | None:
    """Return the update of the run's own last evaluation in eval.jsonl; None if there is none."""
    try:
        records = _newest_first(run / "eval.jsonl")
        return next(record["update"] for record in records if not record.get("asked"))
    except (OSError, StopIteration, ValueError, KeyError, TypeError, AttributeError):
        return None


def _newest_first(path: Path) -> Iterator[dict]:
    return map(json.loads, reversed(path.read_bytes().splitlines()))
