"""Reads a dialogue log (trajectories.jsonl, ...) as episodes; `run.turns` writes it.

An episode holds only its logged turns. Its first turns may be missing because they were played in
the warm-up, it may span several updates, and it may be unfinished.
"""

import sys
from pathlib import Path

from common.plugins import UserError
from common.run_file import read_jsonl
from run.logged_turn import is_turn

TRAINING_LOG, EVALUATION_LOG = "trajectories.jsonl", "eval_trajectories.jsonl"


class LoggedEpisode:
    """The logged turns of an episode (at least one) and its totals."""

    def __init__(self, env: int, number: int, turns: list[dict]):
        first, last = turns[0], turns[-1]
        self.env, self.number, self.turns = env, number, turns
        self.seed, self.length = first["seed"], len(turns)
        self.ret = sum(turn["reward"] for turn in turns)  # undiscounted
        self.invalid = sum(not turn["valid"] for turn in turns)
        self.updates = first["update"], last["update"]
        self.missing = last["step"] - len(turns)  # turns of the warm-up, and damaged lines
        self.outcome = _outcome(last)
        self.name = f"env {env} episode {number}"


def _outcome(last: dict) -> str:
    if last["fault"]:
        return "fault"
    if not (last["terminated"] or last["truncated"]):
        return "unfinished"
    failed = "failure" if last["terminated"] else "time limit"
    return "success" if last["success"] else failed


def read_log(run: Path, evaluation: bool = False) -> list[dict]:
    """Return the logged turns of training, or of the last --eval-only.

    Damaged lines are skipped with a warning on stderr. UserError: there is no log, or it has no
    turns.
    """
    path = run / (EVALUATION_LOG if evaluation else TRAINING_LOG)
    if not path.is_file():
        problem = f"has no {path.name}" if run.is_dir() else "is not a directory"
        needed = "a training run"
        if evaluation:
            needed = "a run evaluated with --eval-only"
        elif (run / EVALUATION_LOG).is_file():
            needed += "; --evaluation shows the episodes of --eval-only"
        raise UserError(f"{run} {problem}; RUN must be the --run-dir of {needed}")
    records, damaged = [], []
    for number, turn in enumerate(read_jsonl(path), start=1):
        whole = turn is not None and is_turn(turn)
        records.append(turn) if whole else damaged.append(number)
    if damaged:
        lines = f"line {damaged[0]}"
        if len(damaged) > 1:
            lines = f"{len(damaged)} lines (first: {damaged[0]})"
        print(f"{path}: skipped {lines}, incomplete", file=sys.stderr)
    if not records:
        why = "has no turns in the current format" if damaged else "is empty (--log-envs 0?)"
        raise UserError(f"{path} {why}")
    return records


def episodes_of(records: list[dict]) -> list[LoggedEpisode]:
    """Return the episodes, ordered by environment, then by time."""
    turns: dict[tuple[int, int], list[dict]] = {}
    for record in records:
        turns.setdefault((record["env"], record["episode"]), []).append(record)
    return [LoggedEpisode(env, number, turns[env, number]) for env, number in sorted(turns)]
