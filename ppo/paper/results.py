"""The page of a reproduced table or figure: Markdown, the paper's number beside ours.

What it shows is read from the runs' own files (`ppo.reports.curves`); which runs belong to it is in
`tables`. Runs that are not finished are left out of the numbers and listed below the table.
"""

import math
import statistics
from pathlib import Path

from ppo.evaluation import wilson_interval
from ppo.reports.curves import Run, group_runs
from ppo.reports.evaluations import crafter_score, markdown

LAST = 10  # updates that a value loss is the mean of
MEASURES = {
    "success": "share of successes [Wilson 95 % interval of all episodes, pooled over the seeds]",
    "return": "mean return +- standard error, from those of the seeds' panels",
}
SEEDS = """
The numbers after training are means over the seeds. Seeds play the same episodes, and the bounds do
not speak of the spread over seeds: "each seed" shows it. "Before" is one evaluation, in the run of
seed 1, as the seed changes neither the initial model nor the panel."""


def write_results(
    path: Path, table: dict, about: str, runs: list[tuple[dict, int, Run | None]]
) -> None:
    """Write the page and, beside it, the pictures of a figure.

    about: what is said of the scale; runs: (row of the table, seed, what is there of its run)
    """
    trained = [run for _, _, run in runs if run is not None and run.metrics]
    pictures = {}
    if table["pictures"] and trained:
        from ppo.reports.charts import draw

        drawn = draw(group_runs(trained))
        pictures = {f"{path.stem}-{n}.png": drawn[n] for n in table["pictures"] if n in drawn}
    for name, png in pictures.items():
        (path.parent / name).write_bytes(png)
    path.write_text(page(table, about, runs) + "".join(f"\n![{n}]({n})\n" for n in pictures))


def page(table: dict, about: str, runs: list[tuple[dict, int, Run | None]]) -> str:
    rows = [_cells(table, row, [(s, run) for r, s, run in runs if r is row and run is not None])
            for row in table["rows"]]  # fmt: skip
    names = [name for name in rows[0] if any(cells[name] != "-" for cells in rows)]
    note = f"Ours: {MEASURES[table['measure']]}.{SEEDS * table['trained']}"
    minutes = "Minutes: wall time of all runs of a row, their evaluations included."
    parts = [
        f"# {table['title']}",
        f"Ours: {about}.",
        markdown(names, [[cells[name] for name in names] for cells in rows]),
        f"{note}\n{minutes}",
        table["about"],
        _missing(runs),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cells(table: dict, row: dict, runs: list[tuple[int, Run]]) -> dict[str, str]:
    """Column -> text, "-" where there is nothing. runs: (seed, run) of the row."""
    finished = [(seed, run) for seed, run in runs if final_evaluation(run)]
    before = [e for _, run in runs for e in run.evals if e["update"] == 0][:1]
    after = [final_evaluation(run) for _, run in finished] if table["trained"] else []
    minutes = sum(sum(run.minutes().values()) for _, run in finished)
    measure, (paper_before, paper_after) = table["measure"], row["paper"]
    form = "{:.2f}" if measure == "return" else "{:.3f}"
    each = lambda name, form, evals: " ".join(form.format(e[name]) for e in evals if name in e)
    if table["trained"]:
        cells = {
            "": row["label"],
            "paper, before": paper_before,
            "before": measured(measure, before),
            "paper, after": paper_after,
            "after": measured(measure, after),
            "each seed": each(f"eval/{measure}", form, after),
        }
    else:
        cells = {"": row["label"], "paper": paper_before, "ours": measured(measure, before)}
    cells |= {
        "achievements": _change("eval/achievements", before, after),
        "score": _change("score", *([e | crafter_score(e) for e in es] for es in (before, after))),
        "length": _change("eval/episode_len", before, after),
        "value loss": _value_loss([run for _, run in finished]) if table["pictures"] else "",
        "temperature": each("eval/temperature", "{:g}", (after or before)[:1]),
        "episodes": each("eval/episodes", "{:.0f}", (after or before)[:1]),
        "updates": each("update", "{:.0f}", after[:1]),
        "seeds": " ".join(str(seed) for seed, _ in finished) if table["trained"] else "",
        "commit": " ".join(sorted({run.commit for _, run in finished})),
        "minutes": f"{minutes:.1f}" if finished else "",
    }
    return {name: text or "-" for name, text in cells.items()}


def final_evaluation(run: Run) -> dict | None:
    """The one that ends a run; None of an unfinished one. Later ones (--resume RUN --eval-only)
    may have been made otherwise and do not count."""
    last = 0 if run.settings.get("eval_only") else run.settings.get("num_updates")
    return next((e for e in run.evals if e["update"] == last), None)


def measured(measure: str, evals: list[dict]) -> str:
    """Mean over evaluations: "success" with the Wilson interval of all their episodes, "return"
    with the standard error of a mean of independent means."""
    if not evals:
        return "-"
    values = [e[f"eval/{measure}"] for e in evals]
    if measure == "return":
        error = math.sqrt(sum(e["eval/return_stderr"] ** 2 for e in evals)) / len(evals)
        return f"{statistics.fmean(values):.2f} +- {error:.2f}"
    counts = [round(e["eval/episodes"]) for e in evals]
    wins = sum(round(v * count) for v, count in zip(values, counts, strict=True))
    low, high = wilson_interval(wins, sum(counts))
    return f"{statistics.fmean(values):.3f} [{low:.3f}, {high:.3f}]"


def _change(name: str, before: list[dict], after: list[dict]) -> str:
    """ "6.10 -> 9.20", the means before and after, or the one that is there."""
    values = [[e[name] for e in evals if name in e] for evals in (before, after)]
    return " -> ".join(f"{statistics.fmean(v):.2f}" for v in values if v)


def _value_loss(runs: list[Run]) -> str:
    """Mean over runs of the mean over their last updates."""
    curves = [list(run.curve("ppo/value_loss").values())[-LAST:] for run in runs]
    means = [statistics.fmean(curve) for curve in curves if curve]
    return f"{statistics.fmean(means):.4f}" if means else ""


def _missing(runs: list[tuple[dict, int, Run | None]]) -> str:
    lines = []
    for row, seed, run in runs:
        name = f"- {row['label']}, seed {seed}"
        if run is None:
            lines.append(f"{name}: not begun")
        elif not final_evaluation(run):
            of = "" if run.settings.get("eval_only") else f" of {run.settings.get('num_updates')}"
            lines.append(f"{name}: not finished, {len(run.metrics)}{of} updates")
    return "\n".join(["Missing:\n", *lines]) if lines else ""
