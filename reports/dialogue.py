"""Which logged episodes are shown, how strong a colour is, and text that is safe to show."""

import re
import sys

from run.dialogue_log import LoggedEpisode
from run.logged_turn import SCORES

FAILED = ("failure", "time limit", "fault")
# Invisible characters, cursor movement and text direction. Newline and tab are kept.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def filter_episodes(
    episodes: list[LoggedEpisode],
    env: int | None = None,
    number: int | None = None,
    updates: tuple[int, int] | None = None,
    failures: bool = False,
    invalid: bool = False,
    longest: bool = False,
) -> list[LoggedEpisode]:
    """Return the episodes that pass all filters.

    updates: (first, last), both inclusive; keeps episodes with a turn in this range
    longest: sort by length, longest first
    """
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
    """Map each score to the magnitude that gets the full colour.

    It is the 98th percentile, so that a few outliers do not make all other tokens pale.
    """
    found = {}
    for name in SCORES:
        sizes = [abs(x) for e in episodes for turn in e.turns for x in turn[name] if x is not None]
        sizes = sorted(sizes) or [0.0]
        found[name] = sizes[int(0.98 * len(sizes))] or sizes[-1] or 1.0
    return found


def escape_hidden(text: str) -> str:
    """Replace characters that a terminal or browser would obey or hide by codes like ⟨U+001B⟩."""
    return HIDDEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)
