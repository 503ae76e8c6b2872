"""From a model's response to an action: a tolerant parser, made of pure functions of text.

The action is what follows the last ACTION marker, or the whole text if there is no marker. What
stands before </think> is reasoning and never an action. Only the first line counts; case,
punctuation, underscores, articles, "2 steps" and remarks in parentheses are ignored. Each
environment's class lists its actions and the near-misses whose meaning is beyond doubt. Two actions
in a row, or an action that the class lacks, are invalid.
"""

import itertools
import re
from collections.abc import Sequence

from common.chat import after_thought, in_history

# The literal markers, in order of preference. Other spellings count if none of these is there.
MARKERS = ("ACTION:", "action:", "Action")
ODD_MARKER = re.compile(r"(?i:action)[\s*_`]{0,3}:|ACTION")


def parse(family: str, text: str) -> tuple[str, bool]:
    """Return the action of `family` that `text` names and True, or the default action and False.

    Programs that have an environment use its own `parse`. ValueError: there is no such family
    """
    from envs import family_class  # imported here because environments import this module

    return family_class(family).parse(text)


def find_action(text: str, phrases: dict[str, str], objects: re.Pattern | None) -> str | None:
    """Return the action that `text` names, or None. The time is linear in the text's length.

    phrases: what may stand for an action -> action, as `all_phrases` makes it
    objects: matches the objects that may follow a verb without changing its meaning
    """
    return phrases.get(_phrase(text[_marker(text, after_thought(text))[1] :], objects))


def all_phrases(actions: Sequence[str], near_misses: dict[str, list[str]]) -> dict[str, str]:
    """Return every accepted phrase, also written as one word, with the action that it means.

    near_misses: action -> other phrases for it, in lower-case words without articles
    """
    phrases = {phrase: action for action, others in near_misses.items() for phrase in others}
    phrases |= {action.lower(): action for action in actions}
    return {phrase.replace(" ", ""): action for phrase, action in phrases.items()} | phrases


def plain(text: str) -> str:
    """Return the words of a text in lower case; a text without a word stays as it is."""
    return " ".join(WORD.findall(text.lower())) or text


def combine(verbs: str, nouns: str) -> list[str]:
    """Return every verb with every noun, as in "mine dig" x "stone coal"; _ stands for a space."""
    pairs = [f"{verb} {noun}" for verb in verbs.split() for noun in nouns.split()]
    return [pair.replace("_", " ") for pair in pairs]


def with_action(text: str, action: str) -> str:
    """Return the response with `action` in place of the one that it names."""
    return f"{in_history(text[: split(text)].strip(), thoughts=True)}\nACTION: {action}".lstrip()


def split(text: str) -> int:
    """Return where the last marker begins: THINK | ACTION. Without one, that is where the reasoning
    ends, and len(text) if there is none."""
    begin = after_thought(text)
    start, end = _marker(text, begin)
    return start if end > begin else begin or len(text)


def _marker(text: str, begin: int) -> tuple[int, int]:
    """Return start and end of the marker that counts, or `begin` twice if there is none."""
    for marker in MARKERS:
        start = text.rfind(marker, begin)
        if start >= 0:
            return start, start + len(marker)
    span = (begin, begin)
    for match in ODD_MARKER.finditer(text, begin):
        span = match.span()
    return span


GROUP = re.compile(r"\([^()]*\)")
WORD = re.compile(r"[^\W_]+")
ARTICLES = {"a", "an", "the"}
OPENING = ARTICLES | {"action", "is", "i", "will", "choose", "to"}  # "the action is", "I will"
NUMBER = r"(?:\d+|one|two|three)"
COUNT = re.compile(rf" (?:once|(?:{NUMBER} )?(?:steps?|times?|cells?))$")


def _phrase(text: str, objects: re.Pattern | None) -> str:
    """Return the first line that has a word, in lower case and reduced to the words that matter."""
    first = WORD.search(text)
    if first is None:
        return ""
    start = max(text.rfind(end, 0, first.start()) for end in "\n\r") + 1
    line = re.split("[\n\r]", text[start:], maxsplit=1)[0].lower()
    # Remarks in parentheses go, closed or not. If nothing else is left, they were the answer.
    outside = GROUP.sub(" ", line).partition("(")[0]
    words = WORD.findall(outside) or WORD.findall(line)
    words = itertools.dropwhile(OPENING.__contains__, words)
    phrase = COUNT.sub("", " ".join(word for word in words if word not in ARTICLES))
    return objects.sub("", phrase) if objects else phrase
