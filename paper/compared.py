"""Writes the page of a comparison: progress, tables over seeds, and training curves.

Turns are environment turns, including the warm-up. Minutes are processor time of collection,
scoring and training, without evaluations; other work on the machine does not change it. A curve is
the mean over seeds of the success (in Crafter, the return) of the last 100 training episodes, with
a 95 % interval at each point.
"""

from pathlib import Path

from paper.intervals import ABOUT_INTERVALS, interval, seeds_text
from paper.methods import Comparison, Method, Task
from paper.prompt_lengths import lengths_table, tokens_of
from paper.quantities import final_evaluation, initial_evaluation
from paper.rows import measure_of
from paper.runs import read_run
from reports.charts import STYLE, colour_of, import_figure, png_of
from reports.evaluations import markdown_table
from reports.run_files import Run

POINTS = 60  # of a curve
CURVE_EPISODES = 100  # per point; short episodes end first, so there is no point before that
AXES = {
    "turns": "environment turns, including the warm-up",
    "minutes": "processor minutes, without evaluations",
}


def write_comparison(path: Path, comparison: Comparison, about: str, plan) -> None:
    """Write the page, with its charts beside it. plan: `paper.compare.ComparisonPlan`"""
    found = {
        (task, method): runs_of(plan, task, method)
        for task in comparison.tasks
        for method in comparison.methods
    }
    parts = [f"# {comparison.title}", f"Ours: {about}.", comparison.about, progress(found, plan)]
    if len(comparison.factors) > 1:
        parts.append(search_table(comparison, plan))
    for task in comparison.tasks:
        if not any(found[task, method] for method in comparison.methods):
            continue  # none of its runs has started
        parts.append(f"## {task.env}\n\n{task_table(comparison, task, found, plan)}")
        for axis in AXES:
            if png := curves(comparison, task, found, axis):
                file = f"{path.stem}-{task.env}-{axis}.png"
                (path.parent / file).write_bytes(png)
                parts[-1] += f"\n\n![{file}]({file})"
        if comparison.memories and (table := lengths_table(plan, task)):
            parts[-1] += f"\n\n{table}"
    parts += [about_after(comparison.tasks[0]), about_commits(found)]
    parts.append(f"## Findings\n\n{comparison.findings}")
    if table := overall_table(comparison, found):
        parts.insert(4, f"## All tasks\n\n{table}")
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def about_after(task: Task) -> str:
    """Describe the columns of the tables, which are the same for all tasks."""
    return (
        f'"Before" is the {task.measure} of the initial model, and "after" that of the '
        f"trained models over seeds, on the same {task.episodes} episodes.{ABOUT_INTERVALS}"
    )


def about_commits(found: dict) -> str:
    """Return a sentence, or "" before the first run."""
    commits = sorted({run.commit for runs in found.values() for run in runs.values()} - {"-"})
    return f"Commits: {', '.join(commits)}." if commits else ""


def runs_of(plan, task: Task, method: Method) -> dict[int, Run]:
    """Map seeds to runs, for the runs that have started."""
    if (factor := plan.factor(method)) is None:
        return {}
    paths = {seed: plan.run(task, method, factor, seed).path for seed in range(1, task.seeds + 1)}
    runs = {seed: read_run(path) for seed, path in paths.items() if path.exists()}
    return {seed: run for seed, run in runs.items() if run is not None}


def finished_runs(runs: dict[int, Run]) -> dict[int, Run]:
    return {seed: run for seed, run in runs.items() if final_evaluation(run)}


def progress(found: dict, plan) -> str:
    """Return a sentence about the progress of the comparison."""
    wanted = sum(task.seeds for task, _ in found)
    done = sum(len(finished_runs(runs)) for runs in found.values())
    started = sum(map(len, found.values())) - done
    search = [plan.found(m, f) for m in plan.comparison.methods for f in plan.comparison.factors]
    of_search = ""
    if len(plan.comparison.factors) > 1:
        tries = len(search) * len(plan.comparison.search_seeds)
        of_search = f"{sum(map(len, search))} of {tries} runs of the search and "
    under_way = f"; {started} more have started" * (started > 0)
    return f"**Progress:** {of_search}{done} of {wanted} runs are finished{under_way}."


def search_table(comparison: Comparison, plan) -> str:
    """Return the table of results of each method with each learning rate."""
    head = ["learning rate x", *(f"{factor:g}" for factor in comparison.factors), "chosen"]
    rows = []
    for method in comparison.methods:
        cells = [plan.found(method, factor) for factor in comparison.factors]
        chosen = plan.factor(method)
        texts = [" ".join(f"{x:.3f}" for x in sorted(cell)) or "-" for cell in cells]
        rows.append([method.label, *texts, "-" if chosen is None else f"{chosen:g}"])
    task, seeds = comparison.tasks[0], " and ".join(map(str, comparison.search_seeds))
    about = f"{task.measure.capitalize()} on {task.env} after training, with seed {seeds}."
    return f"## Learning rate search\n\n{about}\n\n{markdown_table([head, *rows])}"


def task_table(comparison: Comparison, task: Task, found: dict, plan) -> str:
    head = ["", "before", "after", "each seed", "turns", "processor minutes", "seeds"]
    initial = read_run(plan.before(task).path)
    before = initial and final_evaluation(initial)
    measure = f"eval/{task.measure}"
    rows = []
    for k, method in enumerate(comparison.methods):
        done = finished_runs(found[task, method])
        after = [final_evaluation(run)[measure] for run in done.values()]
        if comparison.memories:
            before = initial_evaluation([*found[task, method].values()])
        first = f"{before[measure]:.3f}" if before and (k == 0 or comparison.memories) else ""
        each = " ".join(f"{x:.3f}" for x in after)
        turns, minutes = ([max(at) for run in done.values() if (at := points(run, axis))]
                          for axis in AXES)  # fmt: skip
        seeds = f"{len(done)} of {task.seeds}"
        means = [_mean_text(turns, ",.0f"), _mean_text(minutes, ".1f")]
        if comparison.memories:
            means.insert(1, _mean_text([tokens_of(run) / 1e6 for run in done.values()], ".2f"))
        rows.append([method.label, first, seeds_text([after]), each or "-", *means, seeds])
    if comparison.memories:
        head.insert(5, "million tokens")
    return markdown_table([head, *rows])


def _mean_text(numbers: list[float], form: str) -> str:
    return format(sum(numbers) / len(numbers), form) if numbers else "-"


def overall_table(comparison: Comparison, found: dict) -> str:
    """Return the table over the tasks where every method has a finished run, "" below two tasks.

    A task counts as much as any other, whatever the number of its seeds.
    """
    ends = {key: [final_evaluation(run)["eval/success"] for run in finished_runs(runs).values()]
            for key, runs in found.items()}  # fmt: skip
    tasks = [t for t in comparison.tasks if all(ends[t, m] for m in comparison.methods)]
    if len(tasks) < 2:
        return ""
    rows = [[m.label, seeds_text([ends[task, m] for task in tasks])] for m in comparison.methods]
    names = ", ".join(task.env for task in tasks)
    about = f"Success after training: the mean over {names} of each task's mean over its seeds."
    return f"{about}\n\n{markdown_table([['', 'after'], *rows])}"


def points(run: Run, axis: str) -> dict[float, float | None]:
    """Map the position of each update on an axis to success (in Crafter, return).

    The value is the mean over the last CURVE_EPISODES episodes. It is None until there are so many,
    and while the first episode of an environment goes on: then short episodes flatter the policy.
    """
    of_warm_up = "warmup/turns" if axis == "turns" else "time/processor"
    if axis == "minutes" and not all(of_warm_up in row for row in run.metrics):
        return {}  # an older run without this metric
    start = sum(row.get(of_warm_up, 0) for row in run.warmup)
    curve, seconds, measure = {}, start, measure_of(run.settings.get("env_name", "-"))
    for row in run.metrics:
        seconds += row.get("time/processor", 0.0)
        x = start + row["turns"] if axis == "turns" else seconds / 60
        full = row.get("rollout/episodes", CURVE_EPISODES) >= CURVE_EPISODES
        fair = full and not row.get("rollout/first_under_way")
        curve[x] = row.get(f"rollout/{measure}") if fair else None
    return curve


def curves(comparison: Comparison, task: Task, found: dict, axis: str) -> bytes | None:
    """Return a PNG with the curves of all methods, or None if there are none."""
    Figure, rc_context = import_figure()
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.6))
        axes, drawn = figure.subplots(), False
        axes.set(title=f"{task.measure.capitalize()}, {task.env}", xlabel=AXES[axis],
                 ylabel=f"mean of the last {CURVE_EPISODES} episodes")  # fmt: skip
        if task.measure == "success":
            axes.set_ylim(-0.02, 1.02)
        for k, method in enumerate(comparison.methods):
            runs = [points(run, axis) for run in finished_runs(found[task, method]).values()]
            if line := mean_curve([run for run in runs if run]):
                x, mean, low, high = zip(*line, strict=True)
                axes.plot(x, mean, color=colour_of(k), label=method.label, linewidth=1.6)
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
