"""Writes the Markdown page of a reproduced table or figure, the paper's numbers beside ours.

All numbers come from the runs' own files, as `reports.run_files` reads them. Unfinished runs are
excluded and listed below the table.
"""

import math
import statistics
from pathlib import Path

from paper.effects import claims_part, effects_part
from paper.intervals import ABOUT_INTERVALS, seeds_text
from paper.pages import write_page
from paper.quantities import final_evaluation, initial_evaluation, numbers
from paper.ranks import ranks_part
from paper.rows import PaperRow, PaperTable
from paper.scenes import draw_scenes
from reports.charts import draw_charts
from reports.evaluations import cell_text, markdown_table, with_score
from reports.groups import group_runs
from reports.run_files import Run

MEASURES = {
    "success": "share of successes [Wilson 95 % interval of all episodes, pooled over seeds]",
    "return": "mean return +- standard error, combined from the seeds' evaluations",
}
ABOUT_OURS = f"""
Numbers after training are means over seeds. All seeds play the same episodes, so these intervals do
not cover the variation between seeds; "over seeds" does. "Before" is one evaluation, in the run of
seed 1, because neither the initial model nor the episodes depend on the seed.{ABOUT_INTERVALS}"""

TableRuns = list[tuple[PaperRow, int, Run | None]]  # row, seed, and the run if it has started


def write_results(path: Path, table: PaperTable, about: str, runs: TableRuns) -> None:
    """Write the page, with the charts of a figure beside it. about: description of the scale"""
    trained = [run for _, _, run in runs if run is not None and run.metrics]
    parts = [results_page(table, about, runs)]
    drawn = {}
    if table.scenes and trained:
        drawn[f"{path.stem}.png"] = draw_scenes(by_row(table, runs))
    if table.pictures and trained:
        charts = draw_charts(group_runs(trained))
        names = [name for name in table.pictures if name in charts]
        drawn |= {f"{path.stem}-{name}.png": charts[name] for name in names}
    for file, picture in drawn.items():
        (path.parent / file).write_bytes(picture)
        parts.append(f"![{file}]({file})")
    write_page(path, *parts)


def results_page(table: PaperTable, about: str, runs: TableRuns) -> str:
    found = by_row(table, runs)
    by_name = {row.name: some for row, some in found}
    rows = [_table_row(table, row, found_runs) for row, found_runs in found]
    names = [name for name in rows[0] if any(cells[name] != "-" for cells in rows)]
    parts = [
        f"# {table.title}",
        f"Ours: {about}.",
        claims_part(table.claims, by_name),
        markdown_table([names, *([cells[name] for name in names] for cells in rows)]),
        f"Ours: {_measures(table)}.{ABOUT_OURS * table.trained}\n"
        f"{'Memory: turns of history in a prompt. ' * table.trained}Minutes: wall time of all runs "
        "of a row, including evaluations.",
        table.about,
        "" if table.trained else ranks_part(found),
        effects_part(table.effects, by_name),
        missing_runs(runs),
    ]
    return "\n\n".join(part for part in parts if part)


def by_row(table: PaperTable, runs: TableRuns) -> list[tuple[PaperRow, list[Run]]]:
    """Return each row with its started runs."""
    return [
        (row, [run for other, _, run in runs if other is row and run is not None])
        for row in table.rows
    ]


def _table_row(table: PaperTable, row: PaperRow, runs: list[Run]) -> dict[str, str]:
    """Return column -> text, "-" where there is none."""
    finished, first = [run for run in runs if final_evaluation(run)], initial_evaluation(runs)
    before = [with_score(first)] if first else []
    after = [with_score(final_evaluation(run)) for run in finished] if table.trained else []
    form = ".2f" if row.measure == "return" else ".3f"
    ends = [e[f"eval/{row.measure}"] for e in after]
    cells = {"": row.label}
    if table.trained:
        cells |= {
            "paper, before": str(row.paper[0]),
            "before": measured(row.measure, before),
            "paper, after": str(row.paper[1]),
            "after": measured(row.measure, after),
            "over seeds": seeds_text([ends], form),
            "each seed": _each(f"eval/{row.measure}", form, after),
        }
    else:
        cells |= {"paper": str(row.paper[0]), "ours": measured(row.measure, before)}
    cells |= {
        "achievements": _change("eval/achievements", before, after),
        "score": _change("score", before, after),
        "paper, length": row.paper_length,
        "length": _change("eval/episode_len", before, after),
        "value loss": _loss_text(numbers(finished, "last ppo/value_loss"))
        if "value_loss" in table.pictures
        else "",
        "memory": " ".join(sorted({str(run.settings.get("memory_length", "")) for run in finished}))
        if table.trained
        else "",
        "temperature": _each("eval/temperature", "g", (after or before)[:1]),
        "episodes": _each("eval/episodes", ".0f", (after or before)[:1]),
        "updates": _each("update", ".0f", after[:1]),
        "seeds": " ".join(str(run.seed) for run in finished) if table.trained else "",
        "commit": " ".join(sorted({run.commit for run in finished})),
    }
    minutes = sum(sum(run.minutes().values()) for run in finished)
    cells["minutes"] = f"{minutes:.1f}" if finished else ""
    return {name: text or "-" for name, text in cells.items()}


def measured(measure: str, evals: list[dict]) -> str:
    """Return the text of the mean over evaluations.

    Success has the Wilson interval of all episodes, return the standard error of a mean of
    independent means.
    """
    if not evals:
        return "-"
    values = [e[f"eval/{measure}"] for e in evals]
    mean = statistics.fmean(values)
    if measure == "return":
        error = math.sqrt(sum(e["eval/return_stderr"] ** 2 for e in evals)) / len(evals)
        return f"{mean:.2f} +- {error:.2f}"
    from ppo.evaluation import wilson_interval  # here: it imports torch, and --help should be quick

    counts = [round(e["eval/episodes"]) for e in evals]
    wins = sum(round(v * count) for v, count in zip(values, counts, strict=True))
    names = ("eval/success", "eval/success_low", "eval/success_high")
    numbers = (mean, *wilson_interval(wins, sum(counts)))
    return cell_text("success", dict(zip(names, numbers, strict=True)))


def _change(name: str, before: list[dict], after: list[dict]) -> str:
    """Return the means before and after ("6.10 -> 9.20"), or only the existing one."""
    values = [[e[name] for e in evals if name in e] for evals in (before, after)]
    return " -> ".join(f"{statistics.fmean(v):.2f}" for v in values if v)


def _each(name: str, form: str, evals: list[dict]) -> str:
    """Return the values of a metric, one per evaluation."""
    return " ".join(f"{e[name]:{form}}" for e in evals if name in e)


def _loss_text(values: list[float]) -> str:
    return f"{statistics.fmean(values):.4f}" if values else ""


def _measures(table: PaperTable) -> str:
    return "; ".join(MEASURES[name] for name in dict.fromkeys(row.measure for row in table.rows))


def finished_by_row(runs: TableRuns) -> dict[str, list[Run]]:
    """Map the name of a row to its runs that are finished."""
    found: dict[str, list[Run]] = {}
    for row, _, run in runs:
        if run is not None and final_evaluation(run):
            found.setdefault(row.name, []).append(run)
    return found


def missing_runs(runs: TableRuns) -> str:
    """Return the section about unfinished runs, "" if all are finished."""
    lines = []
    for row, seed, run in runs:
        name = f"- {row.label}, seed {seed}"
        if run is None:
            lines.append(f"{name}: not started")
        elif not final_evaluation(run):
            of = "" if run.settings.get("eval_only") else f" of {run.settings.get('num_updates')}"
            lines.append(f"{name}: not finished, {len(run.metrics)}{of} updates")
    return "\n".join(["Missing:\n", *lines]) if lines else ""
