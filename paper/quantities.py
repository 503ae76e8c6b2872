"""Reads quantities from finished runs by name.

"before NAME" and "after NAME" come from eval.jsonl, for the initial and the trained model. "mean
NAME" and "last NAME" come from metrics.jsonl, as means over all updates or over the last ten.
"""

import statistics

from paper.intervals import share_error
from reports.run_files import Run

LAST_UPDATES = 10


def numbers(runs: list[Run], quantity: str) -> list[float]:
    """Return one number per finished run, or only the first for "before", which all runs share."""
    kind, metric = quantity.split()
    if kind == "before":
        first = initial_evaluation(runs) or {}
        return [first[metric]] if metric in first else []
    done = [run for run in runs if final_evaluation(run)]
    if kind == "after":
        ends = map(final_evaluation, done)
        return [end[metric] for end in ends if metric in end]
    curves = [list(run.curve(metric).values()) for run in done]
    last = LAST_UPDATES if kind == "last" else 0  # curve[-0:] is the whole curve
    return [statistics.fmean(curve[-last:]) for curve in curves if curve]


def initial_evaluation(runs: list[Run]) -> dict | None:
    """Return the first evaluation of the initial model. It is the same for all seeds."""
    return next((e for run in runs for e in run.own_evals if e["update"] == 0), None)


def error_before(runs: list[Run], metric: str) -> float:
    """Return the standard error over episodes of a number of `initial_evaluation`.

    Only success and return have a recorded error; it is 0 for other metrics.
    """
    first = initial_evaluation(runs)
    if metric == "eval/success":
        return share_error(first[metric], first["eval/episodes"])
    return first.get(f"{metric}_stderr", 0.0)


def final_evaluation(run: Run) -> dict | None:
    """Return the evaluation at the end of a run, or None while the run is unfinished."""
    last = 0 if run.settings.get("eval_only") else run.settings.get("num_updates")
    enough, made = run.settings.get("num_turns"), len(run.metrics)
    if enough and run.metrics and run.metrics[-1]["turns"] >= enough:
        last = run.metrics[-1].get("update", made)
    return next((e for e in run.own_evals if e["update"] == last), None)
