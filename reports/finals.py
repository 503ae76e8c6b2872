"""The tables of the page of learning curves: final numbers, each run, and what differs.

A table is a list of rows of HTML cells, the head first. All text that comes from a run is escaped.
"""

import statistics
from html import escape

from reports.charts import colour_of, sign_of
from reports.evaluations import cell_text
from reports.run_files import Group, Run, differing

# Column -> the metric whose last value it shows, and how many digits of it
LAST = {
    "training success": ("rollout/success", 3),
    "length": ("rollout/episode_len", 1),
    "valid": ("rollout/valid_action", 2),
    "KL": ("kl/ref", 3),
}


def final_numbers(groups: list[Group]) -> list[list[str]]:
    """A row for each group: its evaluations, and the last values of its training.

    Of several runs a cell has the mean and the standard deviation over them, of one run an
    evaluation has its own interval or standard error.
    """
    head = ["", "seeds", "updates", "success before", "after", "return after", *LAST, "minutes"]
    return [head, *(_finals(group, i) for i, group in enumerate(groups))]


def _finals(group: Group, number: int) -> list[str]:
    runs = group.runs
    before = [first_evaluation(run) for run in runs]
    after = [last_evaluation(run) for run in runs]
    lengths = sorted({len(run.metrics) for run in runs})
    minutes = statistics.fmean(sum(run.minutes().values()) for run in runs)
    return [
        named(group.label, number),
        " ".join(str(seed) for seed in sorted(run.seed for run in runs)),
        "-".join(dict.fromkeys((str(lengths[0]), str(lengths[-1])))),
        _evaluated("success", before),
        _evaluated("success", after),
        _evaluated("return", after),
        *(mean_text([list(run.curve(name).values())[-1:] for run in runs], digits)
          for name, digits in LAST.values()),
        f"{minutes:.1f}",
    ]  # fmt: skip


def first_evaluation(run: Run) -> dict | None:
    """The evaluation of the initial model."""
    return next((e for e in reversed(run.evals) if e["update"] == 0), None)


def last_evaluation(run: Run) -> dict | None:
    """The latest evaluation of the trained model, if the run itself made it."""
    return next((e for e in reversed(run.own_evals) if e["update"] > 0), None)


def _evaluated(column: str, evals: list[dict | None]) -> str:
    there = [e for e in evals if e]
    if len(there) == 1:
        return cell_text(column, there[0])
    return mean_text([[e[f"eval/{column}"]] for e in there])


def mean_text(values: list[list[float]], digits: int = 3) -> str:
    """Return "-", "0.500", or "0.500 ± 0.100": mean and standard deviation of lists that hold one
    value or none."""
    flat = [value for each in values for value in each]
    if not flat:
        return "-"
    spread = f" ± {statistics.stdev(flat):.{digits}f}" if len(flat) > 1 else ""
    return f"{statistics.fmean(flat):.{digits}f}{spread}"


def each_run(groups: list[Group]) -> list[list[str]]:
    runs = [(i, run) for i, group in enumerate(groups) for run in group.runs]
    head = ["run", "seed", "commit", "updates", "success before", "after", "minutes"]
    return [head, *(_row(run, i) for i, run in runs)]


def _row(run: Run, group: int) -> list[str]:
    before, after = first_evaluation(run), last_evaluation(run)
    return [
        named(run.name, group),
        str(run.seed),
        escape(run.commit),
        f"{len(run.metrics)} of {escape(str(run.settings.get('num_updates', '-')))}",
        cell_text("success", before) if before else "-",
        f"{cell_text('success', after)} (update {after['update']:.0f})" if after else "-",
        f"{sum(run.minutes().values()):.1f}",
    ]


def differences(groups: list[Group]) -> list[list[str]]:
    """A row for each group, and a column for each setting that differs between them."""
    runs = [group.runs[0] for group in groups]
    names = differing(runs)
    rows = [
        [named(groups[i].label, i), *(escape(str(run.settings.get(name, "-"))) for name in names)]
        for i, run in enumerate(runs)
    ]
    return [["", *map(escape, names)], *rows] if names else []


def named(name: str, group: int) -> str:
    """HTML of a name behind the sign of its group, in its colour."""
    return f'<b style="color:{colour_of(group)}">{sign_of(group)}</b> {escape(name)}'
