"""Describes the final state of an episode, so that failures on different levels can be compared.

A final state is the outcome, the task and the last observation. To make states of different levels
comparable, the objects that the task names are replaced by [1], [2], ..., as in "pick up the [1],
then go to the [2]", and each line of the observation is cut at its first number. Lines with
numbers, which give positions, count only if they are about such an object, or if the task names
none. If prompts have no task, as in BabaIsAI, the objects come from the lines without numbers:
"[1] is win".
"""

import re
from collections import defaultdict
from os.path import commonprefix

from run.dialogue_log import LoggedEpisode

MAX_TASK_WORDS = 40  # if prompts differ in more words, the difference is not a task
WORD_PATTERN = re.compile(r"\w+|[^\w\s]")
PLACEHOLDER = re.compile(r"\[\d+\]")


def tasks_of(episodes: list[LoggedEpisode]) -> list[tuple[str, list[str]]]:
    """Return each episode's task, with [1], [2], ... for its objects, and the objects.

    The log holds whole prompts. The task is the part in which the first prompts of episodes differ,
    apart from their observations. An episode whose first turn is not logged has no task. If no
    episode has a task, the objects are the words in which the last observations differ, in lines
    without numbers.
    """
    firsts = [episode.turns[0] for episode in episodes]
    known = [turn["step"] == 1 for turn in firsts]
    texts = [_without_observation(turn) for turn in firsts]
    words = [WORD_PATTERN.findall(text) if k else [] for text, k in zip(texts, known, strict=True)]
    prompts = [prompt for prompt in words if prompt]
    begin = len(commonprefix(prompts)) if prompts else 0
    rests = [prompt[begin:] for prompt in prompts]
    end = len(commonprefix([rest[::-1] for rest in rests])) if prompts else 0
    tasks = [prompt[begin : len(prompt) - end] for prompt in words]
    if max(map(len, tasks), default=0) > MAX_TASK_WORDS:
        tasks = [[] for _ in tasks]
    if any(tasks):
        return replace_varying(tasks)
    ends = [WORD_PATTERN.findall("\n".join(_plain_lines(episode))) for episode in episodes]
    return [("", objects) for _, objects in replace_varying(ends)]


def _plain_lines(episode: LoggedEpisode) -> list[str]:
    """Return the lines of the last observation without numbers."""
    lines = episode.turns[-1].get("observation", "").splitlines()
    return [line for line in lines if not re.search(r"\d", line)]


def _without_observation(turn: dict) -> str:
    observation = turn.get("observation")
    return turn["prompt"].replace(observation, " ") if observation else turn["prompt"]


def varying(lines: list[list[str]]) -> list[list[bool]]:
    """Return which words have more than two variants among lines of equal length and beginning."""
    beginnings = defaultdict(set)
    for line in lines:
        beginnings[len(line)].update(line[:1])

    def kind(line: list[str]) -> tuple:
        return len(line), *(line[:1] if len(beginnings[len(line)]) <= 2 else [])

    variants = defaultdict(set)
    for line in lines:
        for k, word in enumerate(line):
            variants[kind(line), k].add(word)
    return [[len(variants[kind(line), k]) > 2 for k in range(len(line))] for line in lines]


def replace_varying(lines: list[list[str]]) -> list[tuple[str, list[str]]]:
    """Replace the varying words of each line. Returns (text, replaced words) of each line."""
    return [_replace(line, varies) for line, varies in zip(lines, varying(lines), strict=True)]


def _replace(line: list[str], varies: list[bool]) -> tuple[str, list[str]]:
    """Replace runs of varying words by [1], [2], ... Returns the text and the replaced words."""
    text, objects, previous = [], [], False
    for word, replaced in zip(line, varies, strict=True):
        if replaced and previous:
            objects[-1] += f" {word}"
        elif replaced:
            objects.append(word)
            text.append(f"[{len(objects)}]")
        else:
            text.append(word)
        previous = replaced
    return re.sub(r" ([,.;:])", r"\1", " ".join(text)), objects


def final_lines(observation: str, objects: list[str]) -> tuple[str, ...]:
    """Return the lines of a last observation that describe the final state (module docstring).

    Lines without numbers come first.
    """
    found = set()
    for line in observation.splitlines():
        start = re.match(r"\D*", line)[0]
        text, cut = start.strip(), len(start) < len(line)
        for number, name in enumerate(objects, start=1):
            text = re.sub(rf"\b{re.escape(name)}\b", f"[{number}]", text)
        if text and (not cut or PLACEHOLDER.search(text) or not objects):
            found.add((cut, text[:60] + " ..." * cut))
    return tuple(text for _, text in sorted(found))
