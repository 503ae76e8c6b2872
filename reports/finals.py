"""The tables of the learning-curve page: final numbers, each run, and settings that differ.

A table is a list of rows of HTML cells, the header first. All text from the runs is escaped.
"""

import statistics
from html import escape

from reports.drawing import colour_of, sign_of
from reports.evaluations import cell_text
from reports.groups import Group, differing
from reports.run_files import Run

# Column -> the metric whose last value it shows, and the number of digits
TRAINING_COLUMNS = {
    "training success": ("rollout/success", 3),
    "length": ("rollout/episode_len", 1),
    "valid": ("rollout/valid_action", 2),
    "KL": ("kl/ref", 3),
}


def final_numbers(groups: list[Group]) -> list[list[str]]:
    """Return a row per group: its evaluations and the last values of its training metrics.

    A group of several runs shows mean and standard deviation over runs. A single run shows each
    evaluation's own interval or standard error.
    """
    header = [
        "",
        "seeds",
        "updates",
        "success before",
        "after",
        "return after",
        *TRAINING_COLUMNS,
        "minutes",
    ]
    return [header, *(_finals(group, i) for i, group in enumerate(groups))]


def _finals(group: Group, number: int) -> list[str]:
    runs = group.runs
    before = [first_evaluation(run) for run in runs]
    after = [latest_evaluation(run) for run in runs]
    lengths = sorted({len(run.metrics) for run in runs})
    minutes = statistics.fmean(sum(run.minutes().values()) for run in runs)
    return [
        labelled(group.label, number),
        " ".join(str(seed) for seed in sorted(run.seed for run in runs)),
        "-".join(dict.fromkeys((str(lengths[0]), str(lengths[-1])))),
        _evaluated("success", before),
        _evaluated("success", after),
        _evaluated("return", after),
        *(mean_text([list(run.curve(name).values())[-1:] for run in runs], digits)
          for name, digits in TRAINING_COLUMNS.values()),
        f"{minutes:.1f}",
    ]  # fmt: skip


def first_evaluation(run: Run) -> dict | None:
    """Return the evaluation of the initial model that the run itself made."""
    return next((e for e in reversed(run.own_evals) if e["update"] == 0), None)


def latest_evaluation(run: Run) -> dict | None:
    """Return the latest evaluation of the trained model that the run itself made."""
    return next((e for e in reversed(run.own_evals) if e["update"] > 0), None)


def _evaluated(column: str, evals: list[dict | None]) -> str:
    present = [e for e in evals if e]
    if len(present) == 1:
        return cell_text(column, present[0])
    return mean_text([[e[f"eval/{column}"]] for e in present])


def mean_text(values: list[list[float]], digits: int = 3) -> str:
    """Return "-", "0.500", or "0.500 ± 0.100": mean and standard deviation.

    values: one list per run, with one value or none
    """
    flat = [value for each in values for value in each]
    if not flat:
        return "-"
    spread = f" ± {statistics.stdev(flat):.{digits}f}" if len(flat) > 1 else ""
    return f"{statistics.fmean(flat):.{digits}f}{spread}"


def each_run(groups: list[Group]) -> list[list[str]]:
    runs = [(i, run) for i, group in enumerate(groups) for run in group.runs]
    header = ["run", "seed", "commit", "updates", "success before", "after", "minutes"]
    return [header, *(_run_row(run, i) for i, run in runs)]


def _run_row(run: Run, group: int) -> list[str]:
    before, after = first_evaluation(run), latest_evaluation(run)
    return [
        labelled(run.name, group),
        str(run.seed),
        escape(run.commit),
        f"{len(run.metrics)} of {escape(str(run.settings.get('num_updates', '-')))}",
        cell_text("success", before) if before else "-",
        f"{cell_text('success', after)} (update {after['update']:.0f})" if after else "-",
        f"{sum(run.minutes().values()):.1f}",
    ]


def differences(groups: list[Group]) -> list[list[str]]:
    """Return a row per group, with a column per setting that differs between groups."""
    runs = [group.runs[0] for group in groups]
    names = differing(runs)
    rows = [
        [
            labelled(groups[i].label, i),
            *(escape(str(run.settings.get(name, "-"))) for name in names),
        ]
        for i, run in enumerate(runs)
    ]
    return [["", *map(escape, names)], *rows] if names else []


def labelled(name: str, group: int) -> str:
    """Return HTML: the coloured symbol of a group, and a name."""
    return f'<b style="color:{colour_of(group)}">{sign_of(group)}</b> {escape(name)}'
