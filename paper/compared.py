"""Writes the page of a comparison: progress, tables over seeds, and training curves."""

from pathlib import Path
from statistics import fmean

from paper.curves import AXES, AXES_OF_MEMORIES, curves, finished_runs, points, spent
from paper.intervals import ABOUT_INTERVALS, difference, seeds_text, signed
from paper.methods import SEARCH_SEEDS, SEEDS, Comparison, Method, Task
from paper.pages import write_page
from paper.prompt_lengths import lengths_table
from paper.quantities import final_evaluation, initial_evaluation, numbers
from paper.runs import read_run
from reports.evaluations import markdown_table
from reports.run_files import Run

COLUMNS = {  # the head, and the format of the numbers
    "turns": ("turns", ",.0f"),
    "tokens": ("million tokens", ".2f"),
    "minutes": ("processor minutes", ".1f"),
}

ABOUT_DIFFERENCES = """
How far a method is "above" another is the difference of their means, with Welch's 95 % t interval.
The mean over training is that of the last 100 episodes, after each update. Early on it flatters all
methods, because short episodes end first."""


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
        for axis in axes_of(comparison):
            if png := curves(comparison, task, found, axis):
                file = f"{path.stem}-{task.env}-{axis}.png"
                (path.parent / file).write_bytes(png)
                parts[-1] += f"\n\n![{file}]({file})"
        tables = [difference_table(comparison, task, found, name) for name in comparison.against]
        tables += [lengths_table(plan, task)] if comparison.memories else []
        parts[-1] += "".join(f"\n\n{table}" for table in tables if table)
    parts += [about_after(comparison.tasks) + ABOUT_DIFFERENCES * bool(comparison.against)]
    parts.append(about_commits(found))
    if table := overall_table(comparison, found):
        parts.insert(4, f"## All tasks\n\n{table}")
    write_page(path, *parts)


def axes_of(comparison: Comparison) -> tuple[str, ...]:
    return AXES_OF_MEMORIES if comparison.memories else AXES


def about_after(tasks: list[Task]) -> str:
    """Describe the columns of the tables."""
    panels = "; ".join(f"{task.env}: {task.measure}, {task.episodes} episodes" for task in tasks)
    return (
        '"Before" is what the initial model reaches, and "after" what the trained models reach '
        f"over seeds, on the same episodes ({panels}).{ABOUT_INTERVALS}"
    )


def about_commits(found: dict) -> str:
    """Return a sentence, or "" before the first run."""
    commits = sorted({run.commit for runs in found.values() for run in runs.values()} - {"-"})
    return f"Commits: {', '.join(commits)}." if commits else ""


def runs_of(plan, task: Task, method: Method) -> dict[int, Run]:
    """Map seeds to runs, for the runs that have started."""
    if (factor := plan.factor(method)) is None:
        return {}
    paths = {seed: plan.run(task, method, factor, seed).path for seed in SEEDS}
    runs = {seed: read_run(path) for seed, path in paths.items() if path.exists()}
    return {seed: run for seed, run in runs.items() if run is not None}


def progress(found: dict, plan) -> str:
    """Return a sentence about the progress of the comparison."""
    wanted = len(SEEDS) * len(found)
    done = sum(len(finished_runs(runs)) for runs in found.values())
    started = sum(map(len, found.values())) - done
    tuned = [method for method in plan.comparison.methods if method.factor is None]
    search = [plan.found(method, f) for method in tuned for f in plan.comparison.factors]
    of_search = ""
    if len(plan.comparison.factors) > 1:
        tries = len(search) * len(SEARCH_SEEDS)
        of_search = f"{sum(map(len, search))} of {tries} runs of the search and "
    under_way = f"; {started} more have started" * (started > 0)
    return f"**Progress:** {of_search}{done} of {wanted} runs are finished{under_way}."


def search_table(comparison: Comparison, plan) -> str:
    """Return the table of results of each method with each learning rate."""
    head = ["learning rate x", *(f"{factor:g}" for factor in comparison.factors), "chosen"]
    rows = []
    for method in comparison.methods:
        if method.factor is not None:
            continue
        cells = [plan.found(method, factor) for factor in comparison.factors]
        chosen = plan.factor(method)
        texts = [" ".join(f"{x:.3f}" for x in sorted(cell)) or "-" for cell in cells]
        rows.append([method.label, *texts, "-" if chosen is None else f"{chosen:g}"])
    task, seeds = comparison.tasks[0], " and ".join(map(str, SEARCH_SEEDS))
    about = f"{task.measure.capitalize()} on {task.env} after training, with seed {seeds}."
    return f"## Learning rate search\n\n{about}\n\n{markdown_table([head, *rows])}"


def task_table(comparison: Comparison, task: Task, found: dict, plan) -> str:
    axes = axes_of(comparison)
    head = ["", "before", "after", "each seed", *(COLUMNS[axis][0] for axis in axes), "seeds"]
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
        seeds = f"{len(done)} of {len(SEEDS)}"
        means = [_mean_end([*done.values()], axis) for axis in axes]
        rows.append([method.label, first, seeds_text([after]), each or "-", *means, seeds])
    return markdown_table([head, *rows])


def _mean_end(runs: list[Run], axis: str) -> str:
    """Return the mean over runs of all that they spent."""
    ends = [max(at) for run in runs if (at := points(run, axis))]
    return format(fmean(ends), COLUMNS[axis][1]) if ends else "-"


def difference_table(comparison: Comparison, task: Task, found: dict, name: str) -> str:
    """Return the table of how far methods are above the one of that name, with Welch's t intervals;
    "" below two finished runs of each.

    Means over training are compared where the updates of both lie at the same turns.
    """
    base = next(m for m in comparison.methods if m.name == name)
    several = [m for m in comparison.methods if len(finished_runs(found[task, m])) > 1]
    if base not in several or len(several) < 2:
        return ""
    head = [f"above {base.label}", "after training", "in the mean over training"]
    rows = []
    for method in several:
        if method != base:
            both = [[*finished_runs(found[task, m]).values()] for m in (method, base)]
            same_turns = len({(*spent(run, "turns"),) for runs in both for run in runs}) == 1
            after = _difference(both, f"after eval/{task.measure}")
            mean = _difference(both, f"mean rollout/{task.measure}") if same_turns else "-"
            rows.append([method.label, after, mean])
    return markdown_table([head, *rows])


def _difference(both: list[list[Run]], quantity: str) -> str:
    ours, its = (numbers(runs, quantity) for runs in both)
    return signed(*difference([ours], [its]))


def overall_table(comparison: Comparison, found: dict) -> str:
    """Return the table of success over the tasks with a finished run, of the methods that have one
    in each; "" below two tasks.

    A task counts as much as any other, whatever the number of its seeds.
    """
    ends = {key: [final_evaluation(run)["eval/success"] for run in finished_runs(runs).values()]
            for key, runs in found.items()}  # fmt: skip
    tasks = [t for t in comparison.tasks if t.measure == "success"]
    tasks = [t for t in tasks if any(ends[t, m] for m in comparison.methods)]
    methods = [m for m in comparison.methods if all(ends[t, m] for t in tasks)]
    if len(tasks) < 2 or not methods:
        return ""
    rows = [[m.label, seeds_text([ends[task, m] for task in tasks])] for m in methods]
    names = ", ".join(task.env for task in tasks)
    about = f"Success after training: the mean over {names} of each task's mean over its seeds."
    return f"{about}\n\n{markdown_table([['', 'after'], *rows])}"
