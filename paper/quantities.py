"""Reads numbers from finished runs, by the name of a quantity.

"before NAME" and "after NAME" are of eval.jsonl, the initial model's and the trained one's.
"mean NAME" and "last NAME" are of metrics.jsonl, over all updates or over the last ten.
"""

import statistics

from paper.intervals import share_error
from reports.run_files import Run

LAST = 10


def numbers(runs: list[Run], quantity: str) -> list[float]:
    """One number of each finished run; of "before" the first one, for it is the same in all."""
    kind, metric = quantity.split()
    if kind == "before":
        first = initial_evaluation(runs) or {}
        return [first[metric]] if metric in first else []
    done = [run for run in runs if final_evaluation(run)]
    if kind == "after":
        ends = map(final_evaluation, done)
        return [end[metric] for end in ends if metric in end]
    curves = [list(run.curve(metric).values()) for run in done]
    last = LAST if kind == "last" else 0  # curve[-0:] is the whole of it
    return [statistics.fmean(curve[-last:]) for curve in curves if curve]


def initial_evaluation(runs: list[Run]) -> dict | None:
    """The evaluation of the initial model: the first, as seeds change neither it nor the panel."""
    return next((e for run in runs for e in run.evals if e["update"] == 0), None)


def error_before(runs: list[Run], metric: str) -> float:
    """The standard error over episodes of a number of `initial_evaluation`: of success and return,
    0 for the others, of which it is not recorded."""
    first = initial_evaluation(runs)
    if metric == "eval/success":
        return share_error(first[metric], first["eval/episodes"])
    return first.get(f"{metric}_stderr", 0.0)


def final_evaluation(run: Run) -> dict | None:
    """The evaluation that ended a run, None while the run is unfinished. Those that somebody asked
    for later (--resume RUN --eval-only) may have other settings and do not count."""
    alone = run.settings.get("eval_only")
    last = 0 if alone else run.settings.get("num_updates")
    enough, made = run.settings.get("num_turns"), len(run.metrics)
    if enough and run.metrics and run.metrics[-1]["turns"] >= enough:
        last = run.metrics[-1].get("update", made)
    own = run.evals if alone else run.own_evals
    return next((e for e in own if e["update"] == last), None)
