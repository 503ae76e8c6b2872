"""The checkpoints that a run has: which one is the newest whole one, and which are kept."""

import json
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError

import torch

from common.plugins import UserError
from run.files import discard, free_name, sha256

NAMES = "update-??????"  # folders in checkpoints/
MODEL_UPDATE = "update.txt"  # in model/: the number of updates that made it


def checkpoints(run: Path) -> list[Path]:
    """Folders of the checkpoints, from old to new."""
    return sorted((run / "checkpoints").glob(NAMES))


def number_of(checkpoint: Path) -> int:
    """How many updates the run had made."""
    return int(checkpoint.name.removeprefix("update-"))


def newest(run: Path) -> Path | None:
    """Folder of the newest whole checkpoint; None if the run never wrote one.

    ValueError: all checkpoints are damaged, or they are gone
    """
    for path in reversed(checkpoints(run)):
        if damage := damaged(path):
            print(f"checkpoint {path} is damaged: {damage}")
        else:
            return path
    if checkpoints(run):
        raise UserError(f"--resume {run}: none of its checkpoints is whole")
    metrics = run / "metrics.jsonl"
    if (run / "model").exists() or metrics.exists() and metrics.stat().st_size:
        raise UserError(
            f"--resume {run}: it has been trained, but nothing is in {run / 'checkpoints'}; "
            "put its checkpoints back, or start a new run"
        )
    return None


def read(folder: Path) -> dict:
    """The state in a checkpoint, on the CPU. ValueError: it holds anything that could run code"""
    try:
        state = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise UserError(
            f"{folder / 'state.pt'} holds more than weights and settings; it is not loaded"
        ) from error
    return state | {"agent": state["agent"] | {"folder": folder}}


def damaged(path: Path) -> str | None:
    """What is wrong with a checkpoint, if anything."""
    try:
        lines = (path / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
        sums = [line.split("  ", 1) for line in lines]
        wrong = [name for digest, name in sums if sha256(path / name) != digest]
        if "state.pt" not in [name for _, name in sums]:
            return "SHA256SUMS is not a list of checksums"
        return f"the checksum of {wrong[0]} is wrong" if wrong else None
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except ValueError:
        return "SHA256SUMS is not a list of checksums"


def set_damaged_aside(run: Path, whole: Path) -> None:
    """Rename the checkpoints that are newer than the newest whole one: they are damaged."""
    for path in checkpoints(run):
        if path > whole:
            try:
                path.rename(free_name(path, ".damaged"))
            except OSError as error:
                print(f"cannot rename {path}: {error.strerror}; the run goes on")


def delete_old(run: Path, keep: int, whole: set[Path]) -> None:
    """Delete what is older than the `keep` newest whole checkpoints.

    whole: checkpoints that need not be read again; those that prove to be whole are added
    """
    kept = 0
    for path in reversed(checkpoints(run)):
        if kept == keep:
            discard(path)
        elif path in whole or damaged(path) is None:
            whole.add(path)
            kept += 1


def model_update(run: Path) -> int | None:
    """How many updates made model/; None if there is none, or it does not say so."""
    try:
        return int((run / "model" / MODEL_UPDATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def turns_made(run: Path, update: int) -> int:
    """How many turns the policy was trained on in the first updates; 0 if the log does not say."""
    try:
        records = _newest_first(run / "metrics.jsonl")
        return next(record["turns"] for record in records if record["update"] == update)
    except (OSError, StopIteration, ValueError, KeyError, TypeError):
        return 0


def is_complete(update: int, turns: int, args) -> bool:
    """Whether a run needs no update after `update` of them and so many turns."""
    return update == args.num_updates or args.num_turns is not None and turns >= args.num_turns


def last_evaluation(run: Path) -> int | None:
    """How many updates the run's own last line in eval.jsonl is about; None if there is none."""
    try:
        records = _newest_first(run / "eval.jsonl")
        return next(record["update"] for record in records if not record.get("asked"))
    except (OSError, StopIteration, ValueError, KeyError, TypeError, AttributeError):
        return None


def _newest_first(path: Path) -> Iterator[dict]:
    return map(json.loads, reversed(path.read_bytes().splitlines()))
