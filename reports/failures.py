"""Groups the failed episodes of a run by final state, to show what the policy has not learnt.

    python -m reports.failures RUN                 training episodes (--log-envs)
    python -m reports.failures RUN --evaluation    episodes of the last --eval-only

`final_states` defines when two episodes failed in the same way.
"""

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

from common.cli import command
from common.plugins import UserError
from reports import dialogue
from reports.dialogue import FAILED, escape_hidden
from reports.evaluations import markdown_table
from reports.exchange import calls_of
from reports.final_states import final_lines, tasks_of
from reports.program import Program
from run.dialogue_log import LoggedEpisode, episodes_of, read_log

LAST_TURNS = 8  # turns at the end of an episode whose actions are counted


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.failures", description=__doc__.splitlines()[0])
    add = program.add_argument
    add("run", type=Path, metavar="RUN", help="run directory")
    add("--evaluation", action="store_true", help="read the last --eval-only")
    span = ("FIRST", "LAST")
    add("--updates", type=int, nargs=2, metavar=span, help="only episodes of these updates")
    add("--most", type=int, default=12, help="maximum number of rows")
    return program.run(print_failures, argv)


def print_failures(args: argparse.Namespace) -> None:
    if args.most < 1:
        raise UserError(f"--most must be at least 1, got {args.most}")
    logged = episodes_of(read_log(args.run, args.evaluation))
    logged = dialogue.filter_episodes(logged, updates=args.updates)
    ended = [episode for episode in logged if episode.outcome != "unfinished"]
    if not ended:
        raise UserError(f"no finished episode in the log of {args.run} (--log-envs logs more)")
    groups = group_failures(ended)
    count = sum(map(len, groups.values()))
    print(f"{count} of {len(ended)} logged episodes failed.")
    if not count:
        return
    rows = sorted(groups.items(), key=lambda item: -len(item[1]))
    table = [
        COLUMN_NAMES,
        *(_failure_row(state, found, count) for state, found in rows[: args.most]),
    ]
    print(f"\n{markdown_table(table)}\n")
    if left := rows[args.most :]:
        print(
            f"{sum(len(found) for _, found in left)} more in {len(left)} other groups (--most).\n"
        )
    for name, outcomes in (("failed", FAILED), ("other", ("success",))):
        turns = [turn for e in ended if e.outcome in outcomes for turn in e.turns]
        if turns:
            print(f"Actions of {name} episodes: {shares(turns, 20)}")
    option = " --evaluation" * args.evaluation
    example = _viewer_flags(rows[0][1])
    view = "python -m reports.viewer"
    view = "turnwise view" if command(view) != view else view  # as this program was started
    print(f"Read one: {view} {args.run}{option} {example}")


COLUMN_NAMES = [
    "failed",
    "share",
    "ended",
    "task",
    "last observation",
    f"last {LAST_TURNS} actions",
    "example",
]


def _failure_row(state: tuple, found: list[LoggedEpisode], count: int) -> list[str]:
    outcome, task, lines = state
    turns = [turn for episode in found for turn in episode.turns[-LAST_TURNS:]]
    texts = [outcome, task or "-", "; ".join(lines) or "-", shares(turns, 3)]
    numbers = [str(len(found)), f"{len(found) / count:.2f}"]
    return numbers + [escape_hidden(text) for text in texts] + [_viewer_flags(found)]


def _viewer_flags(found: list[LoggedEpisode]) -> str:
    """Return the viewer's flags for the latest of the episodes, which the newest policy played."""
    last = max(found, key=lambda episode: episode.updates)
    return f"--env {last.env} --episode {last.number}"


def group_failures(episodes: list[LoggedEpisode]) -> dict[tuple, list[LoggedEpisode]]:
    """Map each final state (outcome, task, lines) to its failed episodes."""
    tasks, groups = tasks_of(episodes), defaultdict(list)
    for episode, (task, objects) in zip(episodes, tasks, strict=True):
        if episode.outcome in FAILED:
            lines = final_lines(episode.turns[-1].get("observation", ""), objects)
            groups[episode.outcome, task, lines].append(episode)
    return dict(groups)


def shares(turns: list[dict], most: int) -> str:
    """Return the most frequent actions, or tool calls, with their shares."""
    count = Counter()
    for turn in turns:
        calls = [call["name"] for call in calls_of(turn.get("reply"))]
        count.update(calls or [" ".join(turn["action"].split())[:40] or "-"])
    total = sum(count.values())
    return ", ".join(f"{name} {k / total:.3f}" for name, k in count.most_common(most))


if __name__ == "__main__":
    sys.exit(main())
