"""How an agent's notes change from turn to turn of a logged episode."""

import re
from difflib import SequenceMatcher

from common.parts import NOTES, marker
from reports.exchange import parts_of

WORD = re.compile(r"\S+\s*")


def notes_of(turn: dict) -> str | None:
    """Return the notes that the response of a logged turn has, or None."""
    for part in parts_of(turn):
        if part.label == NOTES:
            return part.text[marker(part.text, NOTES)[1] :].strip()
    return None


def note_changes(turns: list[dict]) -> list[list[tuple[str, str]]]:
    """Return what each turn changes in the notes: pairs of "same", "new" or "gone" and words.

    The list of a turn is empty if it wrote no notes. Its first notes are new as a whole.
    """
    changes, before = [], ""
    for turn in turns:
        notes = notes_of(turn)
        changes.append([] if notes is None else changed_words(before, notes))
        before = before if notes is None else notes
    return changes


def changed_words(before: str, after: str) -> list[tuple[str, str]]:
    old, new = WORD.findall(before), WORD.findall(after)
    pairs = []
    for kind, a, b, c, d in SequenceMatcher(None, strip(old), strip(new), False).get_opcodes():
        if kind == "equal":
            pairs.append(("same", "".join(new[c:d])))
        else:
            found = (("gone", old[a:b]), ("new", new[c:d]))
            pairs += [(name, "".join(words)) for name, words in found if words]
    return pairs


def strip(words: list[str]) -> list[str]:
    return [word.strip() for word in words]
