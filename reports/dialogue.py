"""Reads a dialogue log (trajectories.jsonl, ...) as episodes, and makes text safe to show.

An episode here is the part of it that the log holds. Its first turns may lie before the log (in the
warm-up), it may span several updates, and it may have no end.
"""

import re
import sys
from pathlib import Path

from common.plugins import UserError
from reports.run_files import read_jsonl

TRAINED, EVALUATED = "trajectories.jsonl", "eval_trajectories.jsonl"
SCORES = ("advantages", "values", "kl")  # numbers per token, which can colour it
FAILED = ("failure", "time limit", "fault")
NEEDED = set(
    """update env episode seed step prompt response action_at action valid reward terminated
    truncated success fault response_truncated prompt_overflow tokens logps values advantages
    kl""".split()
)
# Everything invisible, and what moves a cursor or turns the direction of text; newline and tab stay
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


class LoggedEpisode:
    """The turns of an episode that are in the log, at least one, and what they add up to."""

    def __init__(self, env: int, number: int, turns: list[dict]):
        first, last = turns[0], turns[-1]
        self.env, self.number, self.turns = env, number, turns
        self.seed, self.length = first["seed"], len(turns)
        self.ret = sum(turn["reward"] for turn in turns)  # undiscounted
        self.invalid = sum(not turn["valid"] for turn in turns)
        self.updates = first["update"], last["update"]
        self.missing = last["step"] - len(turns)  # turns of the warm-up, and torn lines
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
    """The turns of the training's log, or of the last --eval-only. Torn lines are left out, with a
    notice on stderr.

    ValueError: there is no log, or no turn in it
    """
    path = run / (EVALUATED if evaluation else TRAINED)
    if not path.is_file():
        what = f"has no {path.name}" if run.is_dir() else "is not a directory"
        how = "trained"
        if evaluation:
            how = "evaluated with --eval-only"
        elif (run / EVALUATED).is_file():
            how += "; --evaluation shows what --eval-only played"
        raise UserError(f"{run} {what}; RUN is the --run-dir of a run that was {how}")
    records, torn = [], []
    for number, turn in enumerate(read_jsonl(path), start=1):
        whole = turn is not None and NEEDED <= turn.keys()
        whole = whole and isinstance(turn["reward"], int | float)  # it may have been NaN
        records.append(turn) if whole else torn.append(number)
    if torn:
        lines = f"line {torn[0]}" if len(torn) == 1 else f"{len(torn)} lines (first: {torn[0]})"
        print(f"{path}: {lines} not whole, left out", file=sys.stderr)
    if not records:
        why = "holds no turn of this version's kind" if torn else "is empty (--log-envs 0?)"
        raise UserError(f"{path} {why}")
    return records


def episodes_of(records: list[dict]) -> list[LoggedEpisode]:
    """Episodes in the order of their environments, then of time."""
    turns: dict[tuple[int, int], list[dict]] = {}
    for record in records:
        turns.setdefault((record["env"], record["episode"]), []).append(record)
    return [LoggedEpisode(env, number, turns[env, number]) for env, number in sorted(turns)]


def filter_episodes(
    episodes: list[LoggedEpisode],
    env: int | None = None,
    number: int | None = None,
    updates: tuple[int, int] | None = None,
    failures: bool = False,
    invalid: bool = False,
    longest: bool = False,
) -> list[LoggedEpisode]:
    """The episodes that pass all filters. `updates` keeps those with turns between first and last
    (inclusive); `longest` sorts by length."""
    low, high = updates or (0, sys.maxsize)
    chosen = [
        episode
        for episode in episodes
        if env in (None, episode.env)
        and number in (None, episode.number)
        and episode.updates[0] <= high
        and episode.updates[1] >= low
        and (not failures or episode.outcome in FAILED)
        and (not invalid or episode.invalid)
    ]
    return sorted(chosen, key=lambda episode: -episode.length) if longest else chosen


def colour_bounds(episodes: list[LoggedEpisode]) -> dict[str, float]:
    """Score -> the size that gets the full colour. 98 of 100 tokens lie below it, so that a few
    outliers do not make all others pale."""
    found = {}
    for name in SCORES:
        sizes = [abs(x) for e in episodes for turn in e.turns for x in turn[name] if x is not None]
        sizes = sorted(sizes) or [0.0]
        found[name] = sizes[int(0.98 * len(sizes))] or sizes[-1] or 1.0
    return found


def escape_hidden(text: str) -> str:
    """Write out, as ⟨U+001B⟩, the characters that a terminal or a browser would obey or hide."""
    return HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)
