"""Generalisation: policies that were trained on babyai-goto play other tasks and larger rooms.

The page has, for each environment, the success of the initial model and of the trained ones. Nobody
trains there. The trained models are those of Table 3, whose runs are shared.
"""

from pathlib import Path

from paper.effects import MARGIN, OVER_SEEDS, RULE, verdict
from paper.intervals import ABOUT_INTERVALS, difference, signed, told
from paper.quantities import error_before, final_evaluation, initial_evaluation
from paper.results import MEASURES, measured, missing_runs
from paper.rows import SCALES, PaperRow, flags_of
from paper.runs import PlannedRun, planned_run, read_run, relative
from paper.tables import BABYAI, TABLES, zero_shot
from reports.evaluations import markdown_table
from reports.run_files import Run

SOURCE = "babyai-goto"
LARGER = ["babyai-goto-12x12", "babyai-goto-16x16"]
ELSEWHERE = [*LARGER, *(env for env in BABYAI if env != SOURCE)]
HEAD = [
    "",
    "before",
    "after",
    "over seeds",
    "each seed",
    "after - before",
    "better after training?",
]
ABOUT = f"""
Only {SOURCE} is trained. The policies of all seeds then play each of these environments as they
are; those with a size in their names have larger rooms than the 8x8 of the training."""


def plan_generalisation(
    scale: str, folder: Path, seeds: list[int] | None, extra: dict
) -> list[PlannedRun]:
    """All runs, the trainings first. folder: of the runs of a scale; seeds: None stands for all.
    The initial models are evaluated with seed 1."""
    seeds = list(dict.fromkeys(seeds or range(1, SCALES[scale]["seeds"] + 1)))
    row = next(row for row in TABLES["table3"].rows if row.name == SOURCE)

    def made(row: PaperRow, seed: int, table: str, **flags) -> PlannedRun:
        flags = flags_of(scale, TABLES[table], row, seed) | extra | flags
        return planned_run(folder, row, seed, flags)

    planned = [made(row, seed, "table3") for seed in seeds]
    for env in ELSEWHERE * (1 in seeds):
        planned.append(made(PaperRow(env, f"{env}, before", zero_shot(env, 1)), 1, "table1"))
    for seed in seeds:
        model = relative(folder / f"{SOURCE}-seed{seed}" / "model")
        for env in ELSEWHERE:
            target = PaperRow(env, env, trained_name(env))
            planned.append(made(target, seed, "table1", model=model))
    return planned


def trained_name(env: str) -> str:
    """The name of the runs that have the trained policies' evaluations in an environment."""
    return SOURCE if env == SOURCE else f"{SOURCE}-on-{env}"


def write_generalisation(path: Path, about: str, planned: list[PlannedRun]) -> None:
    runs = [(plan.row, plan.seed, read_run(plan.path)) for plan in planned]
    found: dict[str, list[Run]] = {}
    for row, _, run in runs:
        if run is not None and final_evaluation(run):
            found.setdefault(row.name, []).append(run)
    done = [run for some in found.values() for run in some]
    episodes = sorted({f"{final_evaluation(run)['eval/episodes']:.0f}" for run in done})
    commits = sorted({run.commit for run in done})
    parts = [
        "# Generalisation: trained on goto, tried elsewhere",
        f"Ours: {about}.",
        ABOUT.strip(),
        markdown_table([HEAD, *(_cells(env, found) for env in [SOURCE, *ELSEWHERE])]),
        f"Ours: {MEASURES['success']}. Episodes: {', '.join(episodes) or '-'}. "
        f"Commits: {', '.join(commits) or '-'}.{ABOUT_INTERVALS}",
        f"{RULE} The margin is {MARGIN}.{OVER_SEEDS}".strip(),
        missing_runs(runs),
    ]
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def _cells(env: str, found: dict[str, list[Run]]) -> list[str]:
    # The first run that was trained has evaluated the initial model on its task.
    initial = found.get(SOURCE if env == SOURCE else zero_shot(env, 1), [])[:1]
    before = [initial_evaluation(initial)] * (initial_evaluation(initial) is not None)
    after = [final_evaluation(run) for run in found.get(trained_name(env), [])]
    ends = [e["eval/success"] for e in after]
    cells = [env, measured("success", before), measured("success", after), told([ends]),
             " ".join(f"{end:.3f}" for end in ends) or "-"]  # fmt: skip
    if not before or len(ends) < 2:
        return [*cells, "-", "-"]
    error = error_before(initial, "eval/success")
    gain = difference([ends], [[before[0]["eval/success"]]], error)
    return [*cells, signed(*gain), verdict(*gain[1:], MARGIN)]
