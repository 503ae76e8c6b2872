"""Evaluations as a Markdown table: eval.md in a run's directory, or a table over runs.

    python -m ppo.reports.evaluations RUN [RUN ...]

A row is an evaluation of eval.jsonl: success with its Wilson 95 % interval, the mean return with
its standard error. Crafter's rows also have the score, and a second table the share of episodes in
which each achievement was unlocked.
"""

import argparse
import math
import sys
from pathlib import Path

from ppo.reports.curves import Run, read_runs

ACHIEVEMENT = "eval/achievement/"
COLUMNS = {
    "updates": "{update:.0f}",
    "episodes": "{eval/episodes:.0f}",
    "success": "{eval/success:.3f} [{eval/success_low:.3f}, {eval/success_high:.3f}]",
    "return": "{eval/return:.3f} +- {eval/return_stderr:.3f}",
    "length": "{eval/episode_len:.1f}",
    "valid actions": "{eval/valid_action:.3f}",
    "achievements": "{eval/achievements:.2f}",
    "score": "{score:.2f}",
    "temperature": "{eval/temperature:g}",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ppo.reports.evaluations", description=__doc__.splitlines()[0]
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="a run's directory")
    notes = []
    runs = read_runs(parser.parse_args(argv).runs, notes)
    notes = [note for note in notes if "args.json" in note or "eval.jsonl" in note]  # the rest may
    if not any(run.evals for run in runs):  # be missing
        print(f"ppo.reports.evaluations: error: no evaluation: {'; '.join(notes)}", file=sys.stderr)
        return 2
    for note in notes:
        print(f"ppo.reports.evaluations: {note}", file=sys.stderr)
    print(eval_table(runs))
    return 0


def write_eval_table(run: Path) -> None:
    """eval.md of all evaluations of a run so far; nothing where it has no args.json."""
    if runs := read_runs([run], []):
        text = f"# Evaluations\n\n{eval_table(runs)}\n"
        (run / "eval.md").write_text(text, errors="replace")


def eval_table(runs: list[Run]) -> str:
    rows = [(run, e | crafter_score(e)) for run in runs for e in run.evals]
    names = [n for n, form in COLUMNS.items() if any(_cell(form, e) != "-" for _, e in rows)]
    table = [
        [run.name] * (len(runs) > 1)
        + [str(run.settings.get("env_name", "-"))]
        + [_cell(COLUMNS[name], e) for name in names]
        for run, e in rows
    ]
    head = ["run"] * (len(runs) > 1) + ["environment", *names]
    said = "Success with its Wilson 95 % interval, return with its standard error."
    return "\n".join([markdown(head, table), "", said, *_achievements(rows)])


def _achievements(rows: list[tuple[Run, dict]]) -> list[str]:
    rows = [(run, e) for run, e in rows if "score" in e]
    if not rows:
        return []
    keys = [key for key in rows[0][1] if key.startswith(ACHIEVEMENT)]
    several = len({run.name for run, _ in rows}) > 1
    head = [f"{run.name}, " * several + f"after {e['update']:.0f} updates" for run, e in rows]
    table = [
        [key.removeprefix(ACHIEVEMENT), *(_cell(f"{{{key}:.3f}}", e) for _, e in rows)]
        for key in keys
    ]
    score = "Score: exp of the mean of ln(1 + s) over the achievements, less 1; s in percent."
    return ["", markdown(["achievement: share of episodes", *head], table), "", score]


def crafter_score(record: dict) -> dict[str, float]:
    """{"score": exp(mean of ln(1 + s_i)) - 1}, s_i the percentage of episodes that unlocked
    achievement i (Hafner 2021); {} for an environment without achievements."""
    shares = [100 * share for key, share in record.items() if key.startswith(ACHIEVEMENT)]
    if not shares:
        return {}
    return {"score": math.exp(sum(math.log1p(s) for s in shares) / len(shares)) - 1}


def _cell(form: str, record: dict) -> str:
    try:
        return form.format_map(record)
    except KeyError:
        return "-"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table of texts."""
    line = lambda cells: f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


if __name__ == "__main__":
    sys.exit(main())
