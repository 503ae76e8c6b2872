"""The marked parts of a response besides its action: NOTES and SUMMARY.

A marker is the part's name and a colon: in capitals anywhere, else at the beginning of a line. What
stands before </think> is reasoning and holds no marker.
"""

import functools
import re

from common.chat import after_thought

NOTES, SUMMARY, ACTION = "NOTES", "SUMMARY", "ACTION"


def marker(text: str, name: str, end: int | None = None) -> tuple[int, int]:
    """Return start and end of the last marker `name` in text[:end]; `end` twice if there is none.

    end: characters of the text that count; None: all
    """
    end = len(text) if end is None else end
    begin, last = after_thought(text), (end, end)
    if (start := text.rfind(f"{name}:", begin, end)) >= 0:
        return start, start + len(name) + 1
    for match in _spelled(name).finditer(text, begin, end):
        last = match.span()
    return last


def part_starts(text: str, action_at: int) -> dict[str, int]:
    """Return where the parts of a response begin that are no thought: name -> character.

    action_at: as in a Step. If a summary begins there, it takes the place of the action. Without
    notes there is no such name.
    """
    notes = marker(text, NOTES, action_at)[0]
    last = SUMMARY if marker(text, SUMMARY)[0] == action_at < len(text) else ACTION
    return ({NOTES: notes} if notes < action_at else {}) | {last: action_at}


@functools.cache
def _spelled(name: str) -> re.Pattern:
    return re.compile(rf"(?im)^[\s*_#`]*{name}[\s*_`]{{0,3}}:")
