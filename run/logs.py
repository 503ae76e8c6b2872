"""The logs of a run, and how a resumed run cuts them back to their state at its checkpoint."""

import json
import shlex
from contextlib import suppress
from pathlib import Path

from common.plugins import UserError
from run.saved import is_complete, turns_made

LOGS = ("metrics", "warmup", "eval", "trajectories", "faults")  # .jsonl files
EVAL = "eval.jsonl"


def logs(run: Path) -> list[Path]:
    """Return the paths of the logs that exist."""
    return [path for name in LOGS if (path := run / f"{name}.jsonl").exists()]


def cut_back(run: Path, sizes: dict[str, int], evaluations: bytes) -> None:
    """Cut the logs to their sizes at the checkpoint, and append `evaluations` to eval.jsonl.

    UserError: a log is shorter than it was at the checkpoint; then nothing is cut
    """
    for name, size in sizes.items():
        check_length(run, run / name, size)
    for path in logs(run):
        with open(path, "r+b") as log:
            log.seek(sizes.get(path.name, 0))
            log.write(evaluations if path.name == EVAL else b"")
            log.truncate()


def check_length(run: Path, path: Path, size: int) -> None:
    left = path.stat().st_size if path.exists() else 0
    if left < size:
        lost = "is shorter than it was at the checkpoint" if path.exists() else "is gone"
        fill = f"yes '' | head -c {size - left} >> {shlex.quote(str(path))}"
        raise UserError(
            f"--resume {run}: {path} {lost}; put it back, or fill it with empty lines: {fill}"
        )


def later_evaluations(run: Path, args, update: int, size: int) -> bytes:
    """Return the lines of eval.jsonl behind its first `size` bytes that a resumed run keeps.

    They evaluate the policy of the checkpoint, after `update` updates, and will not be played
    again: the user asked for them, or the run ended there and is now made longer.
    """
    path = run / EVAL
    if not path.exists():
        return b""
    ends = is_complete(update, turns_made(run, update), args)
    again = args.eval_interval and (ends or update % args.eval_interval == 0)
    kept = b""
    for line in path.read_bytes()[size:].splitlines():
        with suppress(ValueError, KeyError, TypeError):  # a torn line, or none of ours
            record = json.loads(line)
            if record["update"] <= update and (record.get("asked") or not again):
                kept += line + b"\n"
    return kept
