"""The logs of a run, and how a resumed run cuts them back to their state at its checkpoint."""

import json
import shlex
from contextlib import suppress
from pathlib import Path

from common.plugins import UserError
from common.run_file import open_file
from run.saved import is_complete, turns_made

LOGS = ("metrics", "warmup", "eval", "eval_episodes", "trajectories", "faults")  # .jsonl files
EVALUATIONS = ("eval.jsonl", "eval_episodes.jsonl")  # a line for each evaluation


def logs(run: Path) -> list[Path]:
    """Return the paths of the logs that exist."""
    return [path for name in LOGS if (path := run / f"{name}.jsonl").exists()]


def cut_back(run: Path, sizes: dict[str, int], kept: dict[str, bytes]) -> None:
    """Cut the logs to their sizes at the checkpoint, and append what is `kept` of each.

    UserError: a log is a link, or shorter than it was at the checkpoint; then nothing is cut
    """
    for path in logs(run):
        if path.is_symlink():  # it may lead to any file of the user's
            line = "is a link, which is not followed; put the file in its place"
            raise UserError(f"--resume {run}: {path} {line}")
    for name, size in sizes.items():
        check_length(run, run / name, size)
    for path in logs(run):
        with open_file(path, "r+b") as log:
            log.seek(sizes.get(path.name, 0))
            log.write(kept.get(path.name, b""))
            log.truncate()


def check_length(run: Path, path: Path, size: int) -> None:
    left = path.stat().st_size if path.exists() else 0
    if left < size:
        lost = "is shorter than it was at the checkpoint" if path.exists() else "is gone"
        fill = f"yes '' | head -c {size - left} >> {shlex.quote(str(path))}"
        raise UserError(
            f"--resume {run}: {path} {lost}; put it back, or fill it with empty lines: {fill}"
        )


def later_evaluations(run: Path, args, update: int, sizes: dict[str, int]) -> dict[str, bytes]:
    """Return, for each of EVALUATIONS, the lines behind its size that a resumed run keeps.

    They evaluate the policy of the checkpoint, after `update` updates, and will not be played
    again: the user asked for them, or the run ended there and is now made longer.
    """
    ends = is_complete(update, turns_made(run, update), args)
    again = args.eval_interval and (ends or update % args.eval_interval == 0)
    kept = dict.fromkeys(EVALUATIONS, b"")
    for path in (run / name for name in EVALUATIONS):
        lines = path.read_bytes() if path.exists() else b""
        for line in lines[sizes.get(path.name, 0) :].splitlines():
            with suppress(ValueError, KeyError, TypeError):  # a torn line, or none of ours
                record = json.loads(line)
                if record["update"] <= update and (record.get("asked") or not again):
                    kept[path.name] += line + b"\n"
    return kept
