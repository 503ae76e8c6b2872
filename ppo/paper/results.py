"""Writes the page of a reproduced table or figure: Markdown, the paper's number beside ours.

All numbers come from the runs' own files, as `ppo.reports.run_files` reads them. Runs that are not
finished are left out of the numbers and listed below the table.
"""

import math
import statistics
from pathlib import Path

from ppo.paper.tables import PaperRow, PaperTable
from ppo.reports.charts import draw_charts
from ppo.reports.evaluations import cell_text, markdown_table, with_score
from ppo.reports.run_files import Run, group_runs

LAST = 10  # a value loss is the mean over this many last updates
MEASURES = {
    "success": "share of successes [Wilson 95 % interval of all episodes, pooled over the seeds]",
    "return": "mean return +- standard error, from those of the seeds' panels",
}
ABOUT_SEEDS = """
The numbers after training are means over the seeds. Seeds play the same episodes, and the bounds do
not speak of the spread over seeds: "each seed" shows it. "Before" is one evaluation, in the run of
seed 1, as the seed changes neither the initial model nor the panel."""

TableRuns = list[tuple[PaperRow, int, Run | None]]  # row, seed, and what there is of its run


def write_results(path: Path, table: PaperTable, about: str, runs: TableRuns) -> None:
    """Write the page and, beside it, the pictures of a figure. `about` describes the scale."""
    trained = [run for _, _, run in runs if run is not None and run.metrics]
    text = results_page(table, about, runs)
    if table.pictures and trained:
        drawn = draw_charts(group_runs(trained))
        for name in table.pictures:
            if name in drawn:
                file = f"{path.stem}-{name}.png"
                (path.parent / file).write_bytes(drawn[name])
                text += f"\n![{file}]({file})\n"
    path.write_text(text, encoding="utf-8")


def results_page(table: PaperTable, about: str, runs: TableRuns) -> str:
    rows = [_cells(table, row, [(s, run) for r, s, run in runs if r is row and run is not None])
            for row in table.rows]  # fmt: skip
    names = [name for name in rows[0] if any(cells[name] != "-" for cells in rows)]
    parts = [
        f"# {table.title}",
        f"Ours: {about}.",
        markdown_table([names, *([cells[name] for name in names] for cells in rows)]),
        f"Ours: {MEASURES[table.measure]}.{ABOUT_SEEDS * table.trained}\n"
        "Minutes: wall time of all runs of a row, their evaluations included.",
        table.about,
        _missing(runs),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cells(table: PaperTable, row: PaperRow, runs: list[tuple[int, Run]]) -> dict[str, str]:
    """Column -> text, "-" where there is none. runs: (seed, run) of the row."""
    finished = [(seed, run) for seed, run in runs if final_evaluation(run)]
    before = [with_score(e) for _, run in runs for e in run.evals if e["update"] == 0][:1]
    after = [with_score(final_evaluation(run)) for _, run in finished] if table.trained else []
    form = "{:.2f}" if table.measure == "return" else "{:.3f}"
    each = lambda name, form, evals: " ".join(form.format(e[name]) for e in evals if name in e)
    cells = {"": row.label}
    if table.trained:
        cells |= {
            "paper, before": row.paper[0],
            "before": measured(table.measure, before),
            "paper, after": row.paper[1],
            "after": measured(table.measure, after),
            "each seed": each(f"eval/{table.measure}", form, after),
        }
    else:
        cells |= {"paper": row.paper[0], "ours": measured(table.measure, before)}
    cells |= {
        "achievements": _change("eval/achievements", before, after),
        "score": _change("score", before, after),
        "length": _change("eval/episode_len", before, after),
        "value loss": _value_loss([run for _, run in finished]) if table.pictures else "",
        "temperature": each("eval/temperature", "{:g}", (after or before)[:1]),
        "episodes": each("eval/episodes", "{:.0f}", (after or before)[:1]),
        "updates": each("update", "{:.0f}", after[:1]),
        "seeds": " ".join(str(seed) for seed, _ in finished) if table.trained else "",
        "commit": " ".join(sorted({run.commit for _, run in finished})),
    }
    minutes = sum(sum(run.minutes().values()) for _, run in finished)
    cells["minutes"] = f"{minutes:.1f}" if finished else ""
    return {name: text or "-" for name, text in cells.items()}


def final_evaluation(run: Run) -> dict | None:
    """The evaluation that ended a run, None while the run is unfinished. Later evaluations of the
    same update (--resume RUN --eval-only) may have other settings and do not count."""
    last = 0 if run.settings.get("eval_only") else run.settings.get("num_updates")
    enough, made = run.settings.get("num_turns"), len(run.metrics)
    if enough and run.metrics and run.metrics[-1]["turns"] >= enough:
        last = run.metrics[-1].get("update", made)
    return next((e for e in run.evals if e["update"] == last), None)


def measured(measure: str, evals: list[dict]) -> str:
    """The mean over evaluations. A success comes with the Wilson interval of all their episodes, a
    return with the standard error of a mean of independent means."""
    if not evals:
        return "-"
    values = [e[f"eval/{measure}"] for e in evals]
    mean = statistics.fmean(values)
    if measure == "return":
        error = math.sqrt(sum(e["eval/return_stderr"] ** 2 for e in evals)) / len(evals)
        return f"{mean:.2f} +- {error:.2f}"
    from ppo.evaluation import wilson_interval  # here, for it imports torch, and --help is quick

    counts = [round(e["eval/episodes"]) for e in evals]
    wins = sum(round(v * count) for v, count in zip(values, counts, strict=True))
    names = ("eval/success", "eval/success_low", "eval/success_high")
    numbers = (mean, *wilson_interval(wins, sum(counts)))
    return cell_text("success", dict(zip(names, numbers, strict=True)))


def _change(name: str, before: list[dict], after: list[dict]) -> str:
    """The means before and after ("6.10 -> 9.20"), or the only one there is."""
    values = [[e[name] for e in evals if name in e] for evals in (before, after)]
    return " -> ".join(f"{statistics.fmean(v):.2f}" for v in values if v)


def _value_loss(runs: list[Run]) -> str:
    """The mean over runs of each run's mean over its last updates."""
    curves = [list(run.curve("ppo/value_loss").values())[-LAST:] for run in runs]
    means = [statistics.fmean(curve) for curve in curves if curve]
    return f"{statistics.fmean(means):.4f}" if means else ""


def _missing(runs: TableRuns) -> str:
    lines = []
    for row, seed, run in runs:
        name = f"- {row.label}, seed {seed}"
        if run is None:
            lines.append(f"{name}: not begun")
        elif not final_evaluation(run):
            of = "" if run.settings.get("eval_only") else f" of {run.settings.get('num_updates')}"
            lines.append(f"{name}: not finished, {len(run.metrics)}{of} updates")
    return "\n".join(["Missing:\n", *lines]) if lines else ""
