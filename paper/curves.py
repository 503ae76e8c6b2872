"""Training curves of a comparison: success against turns, tokens or processor time.

Turns are environment turns, including the warm-up. Tokens are those of all prompts and responses of
the updates. Minutes are processor time of collection, scoring and training, without evaluations;
other work on the machine does not change it. A curve is the mean over seeds of the success (in
Crafter, the return) of the last 100 training episodes, with a 95 % interval at each point.
"""

from itertools import accumulate, pairwise

from paper.intervals import interval
from paper.methods import Comparison, Task
from paper.quantities import final_evaluation
from paper.rows import measure_of
from reports.drawing import STYLE, colour_of, import_figure, png_of
from reports.run_files import Run

POINTS = 60  # of a curve
CURVE_EPISODES = 100  # per point; short episodes end first, so there is no point before that
LABELS = {
    "turns": "environment turns, including the warm-up",
    "tokens": "million tokens of prompts and responses, without the warm-up",
    "minutes": "processor minutes, without evaluations",
}
AXES = ("turns", "minutes")
AXES_OF_MEMORIES = ("turns", "tokens", "minutes")  # whose prompts differ in length


def finished_runs(runs: dict[int, Run]) -> dict[int, Run]:
    return {seed: run for seed, run in runs.items() if final_evaluation(run)}


def spent(run: Run, axis: str) -> list[float]:
    """Return what a run has spent after each update; [] for an older run that did not count it."""
    if axis == "minutes":
        rows = [*run.warmup, *run.metrics]
        if not all("time/processor" in row for row in run.metrics):
            return []
        seconds = [row.get("time/processor", 0.0) / 60 for row in rows]
        return [*accumulate(seconds)][len(run.warmup) :]
    turns = [row["turns"] for row in run.metrics]
    if axis == "turns":
        start = sum(row.get("warmup/turns", 0) for row in run.warmup)
        return [start + n for n in turns]
    tokens = [row["rollout/prompt_tokens"] + row["rollout/response_tokens"] for row in run.metrics]
    played = [after - before for before, after in pairwise([0, *turns])]
    return [*accumulate(n * size / 1e6 for n, size in zip(played, tokens, strict=True))]


def points(run: Run, axis: str) -> dict[float, float | None]:
    """Map the position of each update on an axis to success (in Crafter, return).

    The value is the mean over the last CURVE_EPISODES episodes. It is None until there are so many,
    and while the first episode of an environment goes on: then short episodes flatter the policy.
    """
    curve, measure = {}, measure_of(run.settings.get("env_name", "-"))
    for at, row in zip(spent(run, axis), run.metrics, strict=False):  # an older run has no minutes
        full = row.get("rollout/episodes", CURVE_EPISODES) >= CURVE_EPISODES
        fair = full and not row.get("rollout/first_under_way")
        curve[at] = row.get(f"rollout/{measure}") if fair else None
    return curve


def curves(comparison: Comparison, task: Task, found: dict, axis: str) -> bytes | None:
    """Return a PNG with the curves of all methods, or None if there are none."""
    Figure, rc_context = import_figure()
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.6))
        axes, drawn = figure.subplots(), False
        axes.set(title=f"{task.measure.capitalize()}, {task.env}", xlabel=LABELS[axis],
                 ylabel=f"mean of the last {CURVE_EPISODES} episodes")  # fmt: skip
        if task.measure == "success":
            axes.set_ylim(-0.02, 1.02)
        for k, method in enumerate(comparison.methods):
            runs = [points(run, axis) for run in finished_runs(found[task, method]).values()]
            if line := mean_curve([run for run in runs if run]):
                x, mean, low, high = zip(*line, strict=True)
                marker = "." if len(line) == 1 else ""  # a line of one point cannot be seen
                axes.plot(x, mean, marker, color=colour_of(k), label=method.label, linewidth=1.6)
                axes.fill_between(x, low, high, color=colour_of(k), alpha=0.15, linewidth=0)
                drawn = True
        axes.set_xlim(left=0)  # the warm-up counts
        if drawn:
            figure.legend(loc="outside lower left", ncols=2)
        return png_of(figure) if drawn else None


def mean_curve(runs: list[dict]) -> list[tuple[float, float, float, float]]:
    """Return (x, mean, low, high) wherever all runs have a value: their last value up to x."""
    if not runs:
        return []
    end, line = min(map(max, runs)), []
    for k in range(1, POINTS + 1):
        x = end * k / POINTS
        reached = [[y for at, y in run.items() if at <= x] for run in runs]
        values = [ys[-1] if ys else None for ys in reached]
        if None not in values:
            line.append((x, *interval([values])))
    return line
