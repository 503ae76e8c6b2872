"""The dialogue log as episodes: read, cut, chosen, and harmless to show.

An episode is what the log holds of it: it may have begun before the log (in the warm-up), go on
through several updates, and have no end in it.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

SCORES = ("advantages", "values", "kl")  # what tokens are coloured by
FAILED = ("failure", "time limit", "fault")
NEEDED = set(
    """update env episode seed step prompt response action_at action valid reward terminated
    truncated success fault response_truncated prompt_overflow tokens logps values advantages
    kl""".split()
)
# All that moves a cursor, changes the direction of text or cannot be seen, but newline and tab
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def shown(text: str) -> str:
    """The text with what a terminal or a browser would obey, or hide, written out."""
    return HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


@dataclass
class Episode:
    """What the log holds of an episode; it may have begun before and may go on after."""

    env: int
    number: int
    turns: list[dict]  # at least one

    @property
    def length(self) -> int:
        return len(self.turns)

    @property
    def seed(self) -> int:
        return self.turns[0]["seed"]

    @property
    def ret(self) -> float:
        """Undiscounted, of the turns in the log."""
        return sum(turn["reward"] for turn in self.turns)

    @property
    def invalid(self) -> int:
        return sum(not turn["valid"] for turn in self.turns)

    @property
    def updates(self) -> tuple[int, int]:
        return self.turns[0]["update"], self.turns[-1]["update"]

    @property
    def missing(self) -> int:
        """Turns that are not in the log: those of the warm-up, lines that were left out."""
        return self.turns[-1]["step"] - len(self.turns)

    @property
    def outcome(self) -> str:
        last = self.turns[-1]
        if last["fault"]:
            return "fault"
        if last["terminated"] or last["truncated"]:
            failed = "failure" if last["terminated"] else "time limit"
            return "success" if last["success"] else failed
        return "unfinished"


def read(run: Path) -> list[dict]:
    """The records of the log; lines that are not whole are left out, with a notice.

    ValueError: there is no log, or no turn in it.
    """
    path, records, torn = run / "trajectories.jsonl", [], []
    if not path.is_file():
        what = "has no trajectories.jsonl" if run.is_dir() else "is not a directory"
        raise ValueError(f"{run} {what}; RUN is the --run-dir of a run that was trained")
    with open(path, encoding="utf-8", errors="replace") as log:
        for number, line in enumerate(log, start=1):
            try:  # NaN is no JSON for a browser
                record = json.loads(line, parse_constant=lambda name: None)
            except ValueError:
                record = None
            whole = isinstance(record, dict) and NEEDED <= record.keys()
            whole = whole and isinstance(record["reward"], int | float)  # NaN has become None
            records.append(record) if whole else torn.append(number)
    if torn:
        lines = f"line {torn[0]}" if len(torn) == 1 else f"{len(torn)} lines (first: {torn[0]})"
        print(f"{path}: {lines} not whole, left out", file=sys.stderr)
    if not records:
        raise ValueError(f"{path} holds no turn of this version's kind")
    return records


def split(records: list[dict]) -> list[Episode]:
    """Episodes in the order of their environments, then of time."""
    turns: dict[tuple[int, int], list[dict]] = {}
    for record in records:
        turns.setdefault((record["env"], record["episode"]), []).append(record)
    return [Episode(*key, turns[key]) for key in sorted(turns)]


def select(
    episodes: list[Episode],
    env: int | None = None,
    number: int | None = None,
    updates: tuple[int, int] | None = None,
    failures: bool = False,
    invalid: bool = False,
    longest: bool = False,
) -> list[Episode]:
    """Those that pass all filters. updates: first and last, of which an episode has a turn."""
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


def bounds(episodes: list[Episode]) -> dict[str, float]:
    """Where the colours end: 98 of 100 tokens are inside, so that an outlier pales nothing."""
    found = {}
    for name in SCORES:
        sizes = [abs(x) for e in episodes for turn in e.turns for x in turn[name] if x is not None]
        sizes = sorted(sizes) or [0.0]
        found[name] = sizes[int(0.98 * len(sizes))] or sizes[-1] or 1.0
    return found
