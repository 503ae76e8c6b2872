"""What a player reads in its prompt of a list that was told once, and what it writes down of it."""

import re

from envs.asking.notes import SHOWN as NOTES_SHOWN
from envs.asking.summaries import SHOWN as SUMMARY_SHOWN
from memory.summary import ASK

NOTES, SUMMARY = (shown.partition("{")[0] for shown in (NOTES_SHOWN, SUMMARY_SHOWN))
UNKNOWN, TO_DO = "nothing", "to do:"


def left_of(messages: list[dict], told: str, item: re.Pattern, done: str) -> list[tuple] | None:
    """Return the items of the list that are still to be done; None if the prompt does not tell.

    What was told last counts: the list itself, a summary, or the notes. Earlier thoughts are not
    read: they would be a memory of their own.

    told: begins the line with the list; done: an observation has it when an item is done
    """
    if messages[-1]["content"].endswith(ASK):
        messages = messages[:-1]  # this observation will be shown again
    left = None
    for message in messages:
        text = message["content"]
        if message["role"] == "assistant":
            continue
        if told in text:
            left = item.findall(text.partition(told)[2].partition("\n")[0])
        elif SUMMARY in text:
            left = item.findall(text.partition(SUMMARY)[2].partition("\n\n")[0])
        if done in text and left:
            left = left[1:]
        if NOTES in text and told not in text:
            left = item.findall(text.partition(NOTES)[2].partition("\n\n")[0])
    return left or None


def written(left: list[tuple] | None) -> str:
    """Return items as notes and summaries word them."""
    return f"{TO_DO} {', '.join(map(' '.join, left))}" if left else UNKNOWN


class Writer:
    """Words the responses of a player, whose notes may be bad.

    begins: share of the first notes of an episode, and of the summaries, that have the list
    keeps: share of the later notes that keep it as it is; others lose its last item
    stray: share of bad ones in whose place good ones are executed, so that a clone sees the turns
        that follow from them
    """

    def __init__(self, rng, begins: float = 1.0, keeps: float = 1.0, stray: float = 0.0):
        self.rng, self.begins, self.keeps, self.stray = rng, begins, keeps, stray

    def respond(self, messages, left, remaining, thought: str, actions) -> tuple[str, str]:
        """Return the response to learn and the one to execute.

        left: the items before the action; remaining: after it; actions: the one to learn and the
            one to execute
        """
        text = messages[-1]["content"]
        if text.endswith(ASK):
            return tuple(f"THINK: I sum up.\nSUMMARY: {items}" for items in self._both(left, True))
        if NOTES not in text:
            return tuple(f"THINK: {thought}\nACTION: {action}" for action in actions)
        first = NOTES + "\n(none)" in text or NOTES + "(none)" in text
        noted = self._both(remaining, first)
        pairs = zip(noted, actions, strict=True)
        return tuple(f"THINK: {thought}\nNOTES: {n}\nACTION: {action}" for n, action in pairs)

    def _both(self, items: list[tuple] | None, begins: bool) -> tuple[str, str]:
        """Return the notes to learn and those to execute."""
        good = written(items)
        if self.rng.random() < (self.begins if begins else self.keeps):
            return good, good
        bad = UNKNOWN if begins else written(items[:-1] if items else None)
        return bad, good if self.rng.random() < self.stray else bad
