"""Generalisation: policies that were trained on babyai-goto play other tasks and larger rooms.

The page has, for each environment, the success of the initial model and of the trained ones. Nobody
trains there. The trained models are those of Table 3, whose runs are shared.
"""

from pathlib import Path

from ppo.paper.effects import OVER_SEEDS, RULE, verdict
from ppo.paper.intervals import ABOUT_INTERVALS, difference, told
from ppo.paper.quantities import final_evaluation
from ppo.paper.results import MEASURES, measured
from ppo.paper.rows import EPISODES, PaperRow, flags_of
from ppo.paper.runs import PlannedRun, read_run, relative
from ppo.paper.tables import BABYAI, TABLES, zero_shot
from ppo.reports.evaluations import markdown_table
from ppo.reports.run_files import Run

SOURCE = "babyai-goto"
LARGER = ["babyai-goto-12x12", "babyai-goto-16x16"]
TARGETS = [SOURCE, *LARGER, *(env for env in BABYAI if env != SOURCE)]
MARGIN = 0.05
ABOUT = f"""
Nothing but {SOURCE} is trained. Each row is an environment that the policies of all seeds play as
they are; those with a size in their names have larger rooms than the 8x8 of the training."""


def plan_generalisation(scale: str, folder: Path, seeds: list[int], extra: dict):
    """All runs, the trainings first. folder: of the runs of a scale"""
    table = TABLES["table3"]
    row = next(row for row in table.rows if row.name == SOURCE)
    flags = {seed: flags_of(scale, table, row, seed) for seed in seeds}
    planned = [made(folder, row, seed, flags[seed] | extra) for seed in seeds]
    for env in TARGETS:
        target = PaperRow(env, env, zero_shot(env, 1))
        planned.append(
            made(folder, target, 1, flags_of(scale, TABLES["table1"], target, 1) | extra)
        )
    for seed in seeds:
        model = {"model": relative(folder / f"{SOURCE}-seed{seed}" / "model")}
        for env in TARGETS:
            target = PaperRow(env, env, f"{SOURCE}-on-{env}")
            plain = flags_of(scale, TABLES["table1"], target, seed)
            planned.append(made(folder, target, seed, plain | model | extra))
    return planned


def made(folder: Path, row: PaperRow, seed: int, flags: dict) -> PlannedRun:
    return PlannedRun(row, seed, folder / f"{row.name}-seed{seed}", flags)


def write_generalisation(path: Path, about: str, planned: list[PlannedRun]) -> None:
    found: dict[str, list[Run]] = {}
    for plan in planned:
        run = read_run(plan.path)
        if run is not None and final_evaluation(run):
            found.setdefault(plan.row.name, []).append(run)
    head = ["", "before", "after", "over seeds", "each seed", "difference", f"better than {MARGIN}"]
    rows = [_cells(env, found) for env in TARGETS]
    parts = [
        "# Generalisation: trained on goto, tried elsewhere",
        f"Ours: {about}.",
        ABOUT.strip(),
        markdown_table([head, *rows]),
        f"Ours: {MEASURES['success']}, {EPISODES} episodes each.{ABOUT_INTERVALS}",
        f"{RULE}{OVER_SEEDS}".strip(),
    ]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _cells(env: str, found: dict[str, list[Run]]) -> list[str]:
    before = [final_evaluation(run) for run in found.get(zero_shot(env, 1), [])]
    after = [final_evaluation(run) for run in found.get(f"{SOURCE}-on-{env}", [])]
    ends = [e["eval/success"] for e in after]
    cells = [env, measured("success", before), measured("success", after), told([ends]),
             " ".join(f"{end:.3f}" for end in ends) or "-"]  # fmt: skip
    if not before or len(ends) < 2:
        return [*cells, "-", "-"]
    mean, low, high = difference([ends], [[before[0]["eval/success"]]])
    return [*cells, f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]", verdict(low, high, MARGIN)]
