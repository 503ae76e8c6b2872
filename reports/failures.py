"""Groups the failed episodes of a run by their final state: what has the policy not learnt?

    python -m reports.failures RUN                 episodes of the training (--log-envs)
    python -m reports.failures RUN --evaluation    those of the last --eval-only

A state is how the episode ended, its task, and what was seen before the last turn. So that states
of different levels are alike, the things that a task names become [1], [2], ... there, as in "pick
up the [1], then go to the [2]", and a line is cut at its first number. Of the lines with numbers,
which tell what lies where, only those about such a thing count, if the task names one. Where
prompts name no task, as in BabaIsAI, the lines without numbers name the things: "[1] is win".
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from os.path import commonprefix
from pathlib import Path

from common.cli import command
from common.plugins import UserError
from reports import dialogue
from reports.dialogue import FAILED, LoggedEpisode, escape_hidden
from reports.evaluations import markdown_table
from reports.exchange import calls_of
from reports.program import Program

LAST = 8  # turns of an episode whose actions are counted
LONGEST = 40  # words of a task; what differs more between prompts is no task
WORD = re.compile(r"\w+|[^\w\s]")
MARK = re.compile(r"\[\d+\]")


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.failures", description=__doc__.splitlines()[0])
    add = program.add_argument
    add("run", type=Path, metavar="RUN", help="directory of a run")
    add("--evaluation", action="store_true", help="episodes of the last --eval-only")
    span = ("FIRST", "LAST")
    add("--updates", type=int, nargs=2, metavar=span, help="only episodes of these updates")
    add("--most", type=int, default=12, help="rows of the table")
    return program.run(print_failures, argv)


def print_failures(args: argparse.Namespace) -> None:
    if args.most < 1:
        raise UserError(f"--most must be at least 1, got {args.most}")
    logged = dialogue.episodes_of(dialogue.read_log(args.run, args.evaluation))
    logged = dialogue.filter_episodes(logged, updates=args.updates)
    ended = [episode for episode in logged if episode.outcome != "unfinished"]
    if not ended:
        raise UserError(f"no logged episode of {args.run} has ended (--log-envs logs more)")
    groups = group_failures(ended)
    count = sum(map(len, groups.values()))
    print(f"{count} of {len(ended)} logged episodes failed.")
    if not count:
        return
    rows = sorted(groups.items(), key=lambda item: -len(item[1]))
    print(f"\n{markdown_table([HEAD, *(_row(*row, count) for row in rows[: args.most])])}\n")
    if left := rows[args.most :]:
        print(f"{sum(len(found) for _, found in left)} more in {len(left)} groups (--most).\n")
    for name, some in (("failed", FAILED), ("other", ("success",))):
        turns = [turn for e in ended if e.outcome in some for turn in e.turns]
        if turns:
            print(f"Actions of {name} episodes: {shares(turns, 20)}")
    option = " --evaluation" * args.evaluation
    example = _id(rows[0][1])
    view = "python -m reports.viewer"
    view = "turnwise view" if command(view) != view else view  # as this program was started
    print(f"Read one: {view} {args.run}{option} {example}")


HEAD = [
    "failed",
    "share",
    "ended",
    "task",
    "seen at the end",
    f"last {LAST} actions",
    "for example",
]


def _row(state: tuple, found: list[LoggedEpisode], count: int) -> list[str]:
    ended, task, seen = state
    turns = [turn for episode in found for turn in episode.turns[-LAST:]]
    told = [ended, task or "-", "; ".join(seen) or "-", shares(turns, 3)]
    number = [str(len(found)), f"{len(found) / count:.2f}"]
    return number + [escape_hidden(text) for text in told] + [_id(found)]


def _id(found: list[LoggedEpisode]) -> str:
    """How the viewer is asked for one of the episodes: the last, of the newest policy."""
    last = max(found, key=lambda episode: episode.updates)
    return f"--env {last.env} --episode {last.number}"


def group_failures(episodes: list[LoggedEpisode]) -> dict[tuple, list[LoggedEpisode]]:
    """Final state (outcome, task, lines) -> the failed ones of `episodes` that ended there."""
    tasks, groups = tasks_of(episodes), defaultdict(list)
    for episode, (task, things) in zip(episodes, tasks, strict=True):
        if episode.outcome in FAILED:
            seen = final_lines(episode.turns[-1].get("observation", ""), things)
            groups[episode.outcome, task, seen].append(episode)
    return dict(groups)


def tasks_of(episodes: list[LoggedEpisode]) -> list[tuple[str, list[str]]]:
    """The task of each episode with [1], [2], ... for the things that it names, and these things.

    The log holds whole prompts. The task is what differs between the first prompts of episodes,
    their observations left out. An episode whose first turn is not logged has none. If no episode
    has one, the things are what differs between the lines without numbers of last observations.
    """
    firsts = [episode.turns[0] for episode in episodes]
    known = [turn["step"] == 1 for turn in firsts]
    texts = [_without_observation(turn) for turn in firsts]
    words = [WORD.findall(text) if k else [] for text, k in zip(texts, known, strict=True)]
    there = [some for some in words if some]
    begin = len(commonprefix(there)) if there else 0
    rests = [some[begin:] for some in there]
    end = len(commonprefix([some[::-1] for some in rests])) if there else 0
    tasks = [some[begin : len(some) - end] for some in words]
    if max(map(len, tasks), default=0) > LONGEST:
        tasks = [[] for _ in tasks]
    if any(tasks):
        return mark_all(tasks)
    ends = [WORD.findall("\n".join(_plain_lines(episode))) for episode in episodes]
    return [("", things) for _, things in mark_all(ends)]


def _plain_lines(episode: LoggedEpisode) -> list[str]:
    """The lines of the last observation that have no number."""
    lines = episode.turns[-1].get("observation", "").splitlines()
    return [line for line in lines if not re.search(r"\d", line)]


def _without_observation(turn: dict) -> str:
    seen = turn.get("observation")
    return turn["prompt"].replace(seen, " ") if seen else turn["prompt"]


def varying(lines: list[list[str]]) -> list[list[bool]]:
    """Which words of a line have more than two variants, in lines of this length and beginning."""
    beginnings = defaultdict(set)
    for line in lines:
        beginnings[len(line)].update(line[:1])
    kind = lambda line: (len(line), *(line[:1] if len(beginnings[len(line)]) <= 2 else []))
    variants = defaultdict(set)
    for line in lines:
        for k, word in enumerate(line):
            variants[kind(line), k].add(word)
    return [[len(variants[kind(line), k]) > 2 for k in range(len(line))] for line in lines]


def mark_all(lines: list[list[str]]) -> list[tuple[str, list[str]]]:
    """`_mark` each line at the words that vary between them."""
    return [_mark(line, variable) for line, variable in zip(lines, varying(lines), strict=True)]


def _mark(task: list[str], variable: list[bool]) -> tuple[str, list[str]]:
    """Put marks in the place of the words that vary. Returns the text and what was replaced."""
    text, things, before = [], [], False
    for word, varies in zip(task, variable, strict=True):
        if varies and before:
            things[-1] += f" {word}"
        elif varies:
            things.append(word)
            text.append(f"[{len(things)}]")
        else:
            text.append(word)
        before = varies
    return re.sub(r" ([,.;:])", r"\1", " ".join(text)), things


def final_lines(observation: str, things: list[str]) -> tuple[str, ...]:
    """The lines of the last observation as the module's docstring says, those without numbers
    first."""
    found = set()
    for line in observation.splitlines():
        start = re.match(r"\D*", line)[0]
        text, cut = start.strip(), len(start) < len(line)
        for number, thing in enumerate(things, start=1):
            text = re.sub(rf"\b{re.escape(thing)}\b", f"[{number}]", text)
        if text and (not cut or MARK.search(text) or not things):
            found.add((cut, text[:60] + " ..." * cut))
    return tuple(text for _, text in sorted(found))


def shares(turns: list[dict], most: int) -> str:
    """The most frequent actions, or tools that were called, with their shares."""
    count = Counter()
    for turn in turns:
        calls = [call["name"] for call in calls_of(turn.get("reply"))]
        count.update(calls or [" ".join(turn["action"].split())[:40] or "-"])
    total = sum(count.values())
    return ", ".join(f"{name} {k / total:.3f}" for name, k in count.most_common(most))


if __name__ == "__main__":
    sys.exit(main())
