"""Write evaluations as a Markdown table: eval.md of a run, or one table over several runs.

    python -m reports.evaluations RUN [RUN ...]

Each line of eval.jsonl is a row: success with its Wilson 95 % interval, and the mean return with
its standard error. A table of pairs compares first and last evaluations, and two runs. A run with
several tasks adds a table of their success; Crafter adds the score, and a table of how often each
achievement was unlocked.
"""

import math
import sys
from pathlib import Path

from common.plugins import UserError
from common.run_file import rewritten
from envs.mixture import SUCCESS
from reports.pairs import ABOUT_PAIRS, pairs_table
from reports.program import Program
from reports.run_files import Run, read_runs

ACHIEVEMENT = "eval/achievement/"
TASK = f"eval/{SUCCESS}"
SCORE = "Score: exp(mean of ln(1 + s)) - 1 over all achievements, with s in percent."
COLUMNS = {
    "updates": "{update:.0f}",
    "episodes": "{eval/episodes:.0f}",
    "faults": "{eval/env_faults:.0f}",
    "success": "{eval/success:.3f} [{eval/success_low:.3f}, {eval/success_high:.3f}]",
    "return": "{eval/return:.3f} +- {eval/return_stderr:.3f}",
    "length": "{eval/episode_len:.1f}",
    "valid actions": "{eval/valid_action:.3f}",
    "achievements": "{eval/achievements:.2f}",
    "score": "{score:.2f}",
    "temperature": "{eval/temperature:g}",
}


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.evaluations", description=__doc__.splitlines()[0])
    program.add_runs()
    return program.run(print_evaluations, argv)


def print_evaluations(args) -> None:
    notes = []
    runs = read_runs(args.runs, notes)
    # an --eval-only run has no other files, so do not report them as missing
    notes = [note for note in notes if "args.json" in note or "eval.jsonl" in note]
    if not any(run.evals for run in runs):
        raise UserError(f"no evaluations: {'; '.join(notes) or 'eval.jsonl is empty'}")
    for note in notes:
        print(f"reports.evaluations: {note}", file=sys.stderr)
    print(eval_table(runs))


def write_eval_table(run_dir: Path) -> None:
    """Write all evaluations so far to eval.md. Does nothing if args.json is missing."""
    if runs := read_runs([run_dir], []):
        text = f"# Evaluations\n\n{eval_table(runs)}\n"
        with rewritten(run_dir / "eval.md", encoding="utf-8", errors="replace") as file:
            file.write(text)


def eval_table(runs: list[Run]) -> str:
    """Return Markdown: a table of all evaluations, and one of tasks or of achievements, if any."""
    rows = [(run, with_score(e)) for run in runs for e in run.evals]
    names = [name for name in COLUMNS if any(cell_text(name, e) != "-" for _, e in rows)]
    if not any(e.get("eval/env_faults") for _, e in rows):  # a column of zeros
        names = [name for name in names if name != "faults"]
    table = [["run", "environment", *names]]
    for run, e in rows:
        env = str(run.settings.get("env_name", "-"))
        table.append([run.name, env, *(cell_text(name, e) for name in names)])
    table = [row[len(runs) == 1 :] for row in table]  # a single run needs no name
    about = "Success has its Wilson 95 % interval, return its standard error."
    if "faults" in names:
        about += " An episode that ended in a fault counts as a failure."
    pairs = pairs_table(runs)
    paired = ["", markdown_table(pairs), "", ABOUT_PAIRS] if len(pairs) > 1 else []
    tasks = _shares(rows, TASK, "task: success")
    unlocked = _shares(rows, ACHIEVEMENT, "achievement: share of episodes")
    score = ["", SCORE] if unlocked else []
    return "\n".join([markdown_table(table), "", about, *paired, *tasks, *unlocked, *score])


def _shares(rows: list[tuple[Run, dict]], prefix: str, title: str) -> list[str]:
    """Return the lines of a table of the figures whose names begin so, a column per evaluation."""
    rows = [(run, e) for run, e in rows if any(key.startswith(prefix) for key in e)]
    if not rows:
        return []
    several = len({run.name for run, _ in rows}) > 1
    table = [[title, *(f"{run.name}, " * several + _when(e) for run, e in rows)]]
    for key in {key: None for _, e in rows for key in e if key.startswith(prefix)}:
        shares = [f"{e[key]:.3f}" if key in e else "-" for _, e in rows]
        table.append([key.removeprefix(prefix), *shares])
    return ["", markdown_table(table)]


def _when(e: dict) -> str:
    return f"after {e['update']:.0f} updates, {cell_text('episodes', e)} episodes"


def with_score(evaluation: dict) -> dict:
    """Return the evaluation with Crafter's score added, if it has achievements.

    The score is exp(mean of ln(1 + s_i)) - 1, where s_i is the percentage of episodes that unlocked
    achievement i (Hafner 2021).
    """
    logs = [math.log1p(100 * v) for k, v in evaluation.items() if k.startswith(ACHIEVEMENT)]
    return evaluation | ({"score": math.exp(sum(logs) / len(logs)) - 1} if logs else {})


def cell_text(column: str, evaluation: dict) -> str:
    """Return the text of one of COLUMNS, "-" if a number is missing."""
    try:
        return COLUMNS[column].format_map(evaluation)
    except KeyError:
        return "-"


def markdown_table(rows: list[list[str]]) -> str:
    """Return a Markdown table whose first row is the header."""
    header, *others = map(_table_line, rows)
    return "\n".join([header, "|" + "---|" * len(rows[0]), *others])


def _table_line(cells: list[str]) -> str:
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
