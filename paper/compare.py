"""Makes the runs of a comparison: first a small learning rate search, then all methods.

Both continue after an interruption, and the page is rewritten after every run. Runs are ordered by
task, then by seed, so that partial results compare all methods. To use two cores, start it twice:

    python -m paper.reproduce estimators --seeds 101 1 3 5    # 101 and 102: seeds of the search
    python -m paper.reproduce estimators --seeds 102 2 4

If one process ends before the other has finished its search, start it again.
"""

from itertools import product
from pathlib import Path
from statistics import fmean

from paper.compared import write_comparison
from paper.comparisons import COMPARISONS
from paper.methods import (
    SEARCH_SEEDS,
    SEEDS,
    Comparison,
    Method,
    Task,
    initial_flags,
    method_flags,
    row_of,
)
from paper.quantities import final_evaluation
from paper.rows import SCALES, PaperRow
from paper.runs import (
    PlannedRun,
    choose_runs,
    command_of,
    matching,
    perform,
    planned_run,
    read_run,
)
from paper.tables import zero_shot
from reports.drawing import import_figure


def run_comparison(args, extra: dict, out: Path, made_by: str) -> int:
    """Make the missing runs, and write the page after each. Returns the exit code."""
    comparison = COMPARISONS[args.name]
    # A directory of their own: some runs of the tables have the same name but other flags.
    folder = args.runs.resolve() / args.scale / args.name
    plan = ComparisonPlan(comparison, args.scale, folder, extra)
    path = out / (args.name + f"-{args.scale}" * (args.scale != "embedded") + ".md")
    about = f"{SCALES[args.scale]['about']}. {made_by}"
    if not args.dry_run:
        import_figure()
        for directory in (out, args.runs):
            directory.mkdir(parents=True, exist_ok=True)
    # The learning rates of the comparison are known after the search.
    for stage in (plan.search, plan.runs):
        chosen = matching(stage(args.seeds), args.only)
        commands = [command_of(run) for run in chosen]
        for number, (run, words) in enumerate(zip(chosen, commands, strict=True), 1):
            code = perform(run, words, f"{number}/{len(chosen)}", args.dry_run)
            if words and not args.dry_run:
                write_comparison(path, comparison, about, plan)
            if code:
                return code
        if not plan.searched():
            print("# then the comparison, with the learning rates chosen by this search")
            break
    choose_runs(plan.search() + plan.runs(), args.only, args.name)  # UserError: no run matches
    if not args.dry_run:
        write_comparison(path, comparison, about, plan)
        print(path)
    return 0


class ComparisonPlan:
    """The runs of a comparison, and the learning rates that the search has chosen so far."""

    def __init__(self, comparison: Comparison, scale: str, folder: Path, extra: dict):
        self.comparison, self.scale, self.folder, self.extra = comparison, scale, folder, extra

    def search(self, seeds: list[int] | None = None) -> list[PlannedRun]:
        """Return each method with each learning rate on the first task, [] if there is one rate."""
        task, factors = self.comparison.tasks[0], self.comparison.factors
        if len(factors) == 1:
            return []
        choices = product(SEARCH_SEEDS, factors, self.comparison.methods)
        return [
            self.run(task, method, factor, seed)
            for seed, factor, method in choices
            if method.factor is None and (not seeds or seed in seeds)
        ]

    def before(self, task: Task) -> PlannedRun:
        """Return the evaluation of the initial model."""
        row = PaperRow(task.env, task.env, zero_shot(task.env, 1))
        return planned_run(self.folder, row, 1, initial_flags(self.scale, task) | self.extra)

    def runs(self, seeds: list[int] | None = None) -> list[PlannedRun]:
        """Return the runs of the comparison, without methods whose learning rate is not chosen.

        seeds: only these; seed 1 includes the evaluations of the initial models
        """
        tasks = [] if self.comparison.memories else self.comparison.tasks
        first = [self.before(task) for task in tasks if not seeds or 1 in seeds]
        chosen = [(method, self.factor(method)) for method in self.comparison.methods]
        order = product(self.comparison.tasks, SEEDS, chosen)
        return first + [
            self.run(task, method, factor, seed)
            for task, seed, (method, factor) in order
            if (not seeds or seed in seeds) and factor is not None
        ]

    def run(self, task: Task, method: Method, factor: float, seed: int) -> PlannedRun:
        row = row_of(task, method, factor)
        flags = method_flags(self.scale, task, method, factor, seed)
        if self.comparison.memories and seed == 1:
            flags["eval_interval"] = flags["num_updates"]  # it evaluates its initial model, too
        flags |= self.extra
        return planned_run(self.folder, row, seed, flags)

    def found(self, method: Method, factor: float) -> list[float]:
        """Return the final evaluations of the finished search runs."""
        task, found = self.comparison.tasks[0], []
        for seed in SEARCH_SEEDS:
            path = self.run(task, method, factor, seed).path
            run = read_run(path) if path.exists() else None
            end = final_evaluation(run) if run else None
            found += [end[f"eval/{task.measure}"]] if end else []
        return found

    def factor(self, method: Method) -> float | None:
        """Return the best factor (of equals, the one nearest to 1), or None during the search."""
        factors = self.comparison.factors
        if method.factor or len(factors) == 1:
            return method.factor or factors[0]
        found = {factor: self.found(method, factor) for factor in factors}
        if any(len(ends) < len(SEARCH_SEEDS) for ends in found.values()):
            return None
        return max(factors, key=lambda factor: (fmean(found[factor]), -abs(factor - 1)))

    def searched(self) -> bool:
        return all(self.factor(method) is not None for method in self.comparison.methods)
