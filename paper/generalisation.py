"""Generalisation: policies trained on babyai-goto play other tasks and larger rooms.

The page shows the success of the initial model and of the trained models in each environment. The
trained models come from the runs of Table 3.
"""

from pathlib import Path

from paper.effects import MARGIN, OVER_SEEDS, RULE, verdict
from paper.intervals import ABOUT_INTERVALS, difference, seeds_text, signed
from paper.pages import write_page
from paper.quantities import error_before, final_evaluation, initial_evaluation
from paper.results import MEASURES, finished_by_row, measured, missing_runs
from paper.rows import PaperRow, flags_of, seeds_of
from paper.runs import PlannedRun, planned_run, read_run, relative
from paper.tables import BABYAI, TABLES, zero_shot
from reports.evaluations import markdown_table
from reports.run_files import Run

SOURCE = "babyai-goto"
LARGER_ROOMS = ["babyai-goto-12x12", "babyai-goto-16x16"]
TARGETS = [*LARGER_ROOMS, *(env for env in BABYAI if env != SOURCE)]
COLUMN_NAMES = [
    "",
    "before",
    "after",
    "over seeds",
    "each seed",
    "after - before",
    "better after training?",
]
ABOUT_GENERALISATION = f"""
Training uses {SOURCE} alone, in rooms of 8x8. The trained policies of all seeds then play each of
these environments without further training. A size in a name means larger rooms."""


def plan_generalisation(
    scale: str, folder: Path, seeds: list[int] | None, extra: dict
) -> list[PlannedRun]:
    """Return all runs, training runs first. The initial models are evaluated with seed 1.

    folder: directory of the runs of a scale; seeds: None for all
    """
    seeds = seeds_of(scale, seeds)
    row = next(row for row in TABLES["table3"].rows if row.name == SOURCE)

    def plan(row: PaperRow, seed: int, table: str, **flags) -> PlannedRun:
        flags = flags_of(scale, TABLES[table], row, seed) | extra | flags
        return planned_run(folder, row, seed, flags)

    planned = [plan(row, seed, "table3") for seed in seeds]
    for env in TARGETS * (1 in seeds):
        planned.append(plan(PaperRow(env, f"{env}, before", zero_shot(env, 1)), 1, "table1"))
    for seed in seeds:
        model = relative(folder / f"{SOURCE}-seed{seed}" / "model")
        for env in TARGETS:
            target = PaperRow(env, env, trained_name(env))
            planned.append(plan(target, seed, "table1", model=model))
    return planned


def trained_name(env: str) -> str:
    """Return the name of the runs that evaluate the trained policies in an environment."""
    return SOURCE if env == SOURCE else f"{SOURCE}-on-{env}"


def write_generalisation(path: Path, about: str, planned: list[PlannedRun]) -> None:
    """Write the page from the runs that are finished."""
    runs = [(plan.row, plan.seed, read_run(plan.path)) for plan in planned]
    found = finished_by_row(runs)
    done = [run for some in found.values() for run in some]
    episodes = sorted({f"{final_evaluation(run)['eval/episodes']:.0f}" for run in done})
    commits = sorted({run.commit for run in done})
    parts = [
        "# Generalisation: trained on goto, tried elsewhere",
        f"Ours: {about}.",
        ABOUT_GENERALISATION.strip(),
        markdown_table([COLUMN_NAMES, *(_env_row(env, found) for env in [SOURCE, *TARGETS])]),
        f"Ours: {MEASURES['success']}. Episodes: {', '.join(episodes) or '-'}. "
        f"Commits: {', '.join(commits) or '-'}.{ABOUT_INTERVALS}",
        f"{RULE} The margin is {MARGIN}.{OVER_SEEDS}".strip(),
        missing_runs(runs),
    ]
    write_page(path, *parts)


def _env_row(env: str, found: dict[str, list[Run]]) -> list[str]:
    # The first training run evaluated the initial model on its task.
    initial = found.get(SOURCE if env == SOURCE else zero_shot(env, 1), [])[:1]
    before = [initial_evaluation(initial)] * (initial_evaluation(initial) is not None)
    after = [final_evaluation(run) for run in found.get(trained_name(env), [])]
    ends = [e["eval/success"] for e in after]
    cells = [env, measured("success", before), measured("success", after), seeds_text([ends]),
             " ".join(f"{end:.3f}" for end in ends) or "-"]  # fmt: skip
    if not before or len(ends) < 2:
        return [*cells, "-", "-"]
    error = error_before(initial, "eval/success")
    gain = difference([ends], [[before[0]["eval/success"]]], error)
    return [*cells, signed(*gain), verdict(*gain[1:], MARGIN)]
