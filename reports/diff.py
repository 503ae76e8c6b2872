"""Compares two runs on one page: flags, versions, figures, and the same episodes side by side.

    python -m reports.diff RUN OTHER [--out FILE]

The episodes are those of the evaluation panel, which is the same for all runs. They are logged by
`turnwise evaluate RUN`; without such a log the page has the tables alone.
"""

import json
import sys
from argparse import Namespace
from html import escape
from itertools import zip_longest
from pathlib import Path
from string import Template

from common.plugins import UserError
from common.run_file import read_text, rewritten
from reports.curves import STYLE, folded, html_table, paired_part
from reports.dialogue import escape_hidden
from reports.finals import final_numbers
from reports.groups import Group, differing
from reports.program import Program
from reports.run_files import Run, read_runs
from run.dialogue_log import EVALUATION_LOG, LoggedEpisode, episodes_of, read_log


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="turnwise diff", description="Compare two runs on one page.")
    program.add_argument("run", metavar="RUN", type=Path, help="run directory")
    program.add_argument("other", metavar="OTHER", type=Path, help="run directory")
    default = Path("runs/diff.html")
    program.add_argument("--out", type=Path, default=default, help="the page (%(default)s)")
    return program.run(write_diff, argv)


def write_diff(args: Namespace) -> None:
    """Write the page. UserError: one of the two is not a run"""
    paths, notes = [args.run, args.other], []
    if args.run.resolve() == args.other.resolve():
        raise UserError("RUN and OTHER are the same directory")
    runs = read_runs(paths, notes)
    if len(runs) != 2:
        raise UserError("; ".join(notes))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    names = differing(runs)
    flags = [[name, *(str(run.settings.get(name, "-")) for run in runs)] for name in names]
    panels = [panel(path, notes) for path in paths]
    page = Template(PAGE).substitute(
        style=STYLE,
        title=escape(f"{runs[0].name} and {runs[1].name}"),
        flags=table([["flag", *(run.name for run in runs)], *flags], "No flag differs."),
        versions=table(
            [["version", *(run.name for run in runs)], *differing_versions(paths, runs)],
            "No version differs.",
        ),
        figures=html_table(final_numbers([Group(run.name, [run]) for run in runs])),
        pairs=paired_part(runs),
        episodes="".join(episode_part(*pair, runs[0].name, runs[1].name) for pair in same(panels)),
        notes="".join(f"<li>{escape(note)}</li>" for note in notes),
    )
    with rewritten(args.out, encoding="utf-8", errors="replace") as file:
        file.write(page)
    print(args.out)


def table(rows: list[list[str]], empty: str) -> str:
    if len(rows) == 1:
        return f"<p>{empty}</p>"
    return html_table([[escape(escape_hidden(cell)) for cell in row] for row in rows])


def differing_versions(paths: list[Path], runs: list[Run]) -> list[list[str]]:
    """Return rows (name, one, other) of the commit and the packages that differ."""
    found = []
    for path, run in zip(paths, runs, strict=True):
        about = json.loads(read_text(path / "args.json"))
        versions = about.get("versions")
        packages = versions if isinstance(versions, dict) else {}
        found.append({"commit": run.commit} | packages)
    one, other = found
    rows = [[name, str(one.get(name, "-")), str(other.get(name, "-"))] for name in one | other]
    return [row for row in rows if row[1] != row[2]]


def panel(path: Path, notes: list[str]) -> list[LoggedEpisode]:
    """Return the logged evaluation episodes, [] with a note if there are none."""
    try:
        return episodes_of(read_log(path, evaluation=True))
    except (UserError, OSError):
        notes.append(f"{path}: no {EVALUATION_LOG}; turnwise evaluate {path} writes it")
        return []


def same(panels: list[list[LoggedEpisode]]) -> list[tuple[LoggedEpisode, LoggedEpisode]]:
    """Return the pairs of whole episodes with one seed."""
    one, other = [{e.seed: e for e in episodes if not e.missing} for episodes in panels]
    return [(one[seed], other[seed]) for seed in one if seed in other]


def first_difference(one: LoggedEpisode, other: LoggedEpisode) -> int | None:
    """Return the number of the first turn, from 1, with another action, or None. An episode that
    ends before the other differs from its next turn on."""
    pairs = zip_longest(one.turns, other.turns)
    for number, (mine, theirs) in enumerate(pairs, start=1):
        if mine is None or theirs is None or mine["action"] != theirs["action"]:
            return number
    return None


def episode_part(one: LoggedEpisode, other: LoggedEpisode, name: str, other_name: str) -> str:
    """Return the folded HTML of an episode that both runs played."""
    at = first_difference(one, other)
    where = f"the actions differ from turn {at} on" if at else "the actions are the same"
    outcomes = f"{one.outcome} after {one.length} turns, {other.outcome} after {other.length}"
    head = ["turn", escape(name), escape(other_name)]
    pairs = enumerate(zip_longest(one.turns, other.turns), start=1)
    rows = [[str(number), cell(mine), cell(theirs)] for number, (mine, theirs) in pairs]
    same_turns = at - 1 if at else 0  # what both did is folded, so that the difference comes first
    before = folded(f"the same actions up to turn {same_turns}", [head, *rows[:same_turns]])
    summary = escape(f"seed {one.seed}: {outcomes}; {where}")
    table = html_table([head, *rows[same_turns:]])
    return f"<details><summary>{summary}</summary>{before}{table}</details>"


def cell(turn: dict | None) -> str:
    """Return what a run saw, said and did in a turn, "" after the end of its episode."""
    if turn is None:
        return ""
    seen = escape(escape_hidden(turn.get("observation", "")))
    said = escape(escape_hidden(turn["response"]))
    action = escape(escape_hidden(turn["action"]))
    invalid = "" if turn["valid"] else " (invalid)"
    return f"<i>{seen}</i><pre>{said}</pre><b>{action}</b>{invalid} {turn['reward']:+g}"


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title>
<style>$style
details table { width: 100%; table-layout: fixed }
details tr > :first-child { width: 3.5em; min-width: 0 }
details td { white-space: pre-wrap; overflow-wrap: anywhere }
details details { margin-left: 1em }
pre { white-space: pre-wrap; margin: 4px 0; font-size: 13px }
</style>
<h1>$title</h1>
<h2>Flags</h2>$flags
<h2>Versions</h2>$versions
<h2>Figures</h2>$figures $pairs
<h2>Episodes of the evaluation panel</h2>$episodes
<ul>$notes</ul>
</html>
"""


if __name__ == "__main__":
    sys.exit(main())
