"""One policy for many tasks: all of BabyAI beside a policy for each, and all of BabaIsAI.

The single policies come from the runs of Table 3. A second policy for BabaIsAI is trained without
some of its tasks, and then plays those.
"""

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from paper.curves import spent
from paper.intervals import ABOUT_INTERVALS, difference, seeds_text, signed
from paper.pages import write_page
from paper.quantities import final_evaluation, initial_evaluation, numbers
from paper.results import finished_by_row, missing_runs
from paper.rows import SCALES, PaperRow, flags_of, seeds_of
from paper.runs import PlannedRun, planned_run, read_run, relative
from paper.tables import BABA, BABYAI, TABLES
from reports.evaluations import markdown_table
from reports.run_files import Run

SEEDS = range(1, 4)
NEW_WAY = "baba-two_room-break_stop-goto_win"
HELD_OUT = [env for env in BABA if env.startswith(NEW_WAY) or env.endswith("-distr_obj_rule")]
OTHERS = [env for env in BABA if env not in HELD_OUT]
EPISODES = {"babyai": 128, "baba": 32}  # of each task in an evaluation


def mixture(name: str, label: str, tasks: list[str], mark: str = "") -> PaperRow:
    episodes = EPISODES[tasks[0].split("-")[0]] * len(tasks)
    names = ",".join(env + mark for env in tasks)
    return PaperRow(names, label, name, flags={"eval_episodes": episodes})


UNIFORM = mixture("babyai-five", "one policy", BABYAI)
WEAK = mixture("babyai-five-weak", "one policy, `=weak`", BABYAI, "=weak")
ALL = mixture("baba-all", "one policy for all", BABA)
WITHOUT = mixture("baba-without", f"one policy for {len(OTHERS)}", OTHERS)
NEW = mixture("baba-without-on-others", "the same, tasks not trained on", HELD_OUT)
ABOUT = f"""
`--env-name TASK,TASK,...` trains one policy on several tasks. An update has 512 turns, and the
episodes of all tasks are equally frequent; with `=weak` a failed task comes again with probability
.75. Such a policy was evaluated at temperature 1, in BabyAI on {EPISODES["babyai"]} episodes for
each of its tasks and in BabaIsAI on {EPISODES["baba"]}, about as many of each.
"""
ABOUT_BABYAI = """
The single policies are those of [Table 3](table3-embedded.md). "Above" is the difference of the
means with Welch's 95 % t interval over seeds. In the row "all" every task counts alike.
"""
ABOUT_BABA = f"""
A policy was trained on all {len(BABA)} tasks, and another on {len(OTHERS)} of them. The second had
never seen the {len(HELD_OUT)} tasks marked "new": those of {NEW_WAY.removeprefix("baba-")}, whose
two steps it knew from other tasks, and those with `-distr_obj_rule`, whose distractors it knew one
by one.
"""


def plan_many_tasks(
    scale: str, folder: Path, seeds: list[int] | None, extra: dict
) -> list[PlannedRun]:
    """Return all runs, those of Table 3 first. folder: directory of the runs of a scale"""
    settings = SCALES[scale]

    def plan(row: PaperRow, seed: int, table: str, **flags) -> PlannedRun:
        flags = flags_of(scale, TABLES[table], row, seed) | extra | flags
        return planned_run(folder, row, seed, flags)

    planned = [
        plan(row, seed, "table3")
        for row in TABLES["table3"].rows if row.env in BABYAI
        for seed in seeds_of(scale, seeds)
    ]  # fmt: skip
    for seed in dict.fromkeys(seeds or SEEDS):
        for row in (UNIFORM, WEAK, ALL, WITHOUT):
            flags = settings["mixtures"][row.env.split("-")[0]]
            planned.append(plan(replace(row, flags=row.flags | flags), seed, "table3"))
        model = relative(folder / f"{WITHOUT.name}-seed{seed}" / "model")
        planned.append(plan(NEW, seed, "table1", model=model))
    return planned


def write_many_tasks(path: Path, about: str, planned: list[PlannedRun]) -> None:
    """Write the page from the runs that are finished."""
    runs = [(plan.row, plan.seed, read_run(plan.path)) for plan in planned]
    found = finished_by_row(runs)
    commits = sorted({run.commit for some in found.values() for run in some})
    parts = [
        "# One policy for many tasks",
        f"Ours: {about}.",
        ABOUT.strip(),
        f"## BabyAI\n\n{ABOUT_BABYAI.strip()}\n\n{babyai_table(found)}\n\n{turns_table(found)}",
        f"## BabaIsAI\n\n{ABOUT_BABA.strip()}\n\n{baba_table(found)}",
        f"Commits: {', '.join(commits) or '-'}.{ABOUT_INTERVALS}",
        missing_runs(runs),
    ]
    write_page(path, *parts)


def success(runs: list[Run], envs: list[str]) -> dict[int, float]:
    """Map the seeds of runs to the mean over tasks of their success after training in a mixture."""
    return {run.seed: mean_of(final_evaluation(run), envs) for run in runs}


def before(runs: list[Run], envs: list[str]) -> str:
    """Return the text of the initial model's success in a mixture, the mean over tasks."""
    first = initial_evaluation(runs)
    return f"{mean_of(first, envs):.3f}" if first else "-"


def mean_of(evaluation: dict, envs: list[str]) -> float:
    """Return the mean of the tasks' success; nan if one of them had no episode."""
    return fmean(evaluation.get(f"eval/success/{env}", math.nan) for env in envs)


def babyai_table(found: dict[str, list[Run]]) -> str:
    one, weak = (found.get(row.name, []) for row in (UNIFORM, WEAK))
    head = ["", "before", "single policies", UNIFORM.label, WEAK.label]
    head += ["one above single", "`=weak` above one"]
    rows = []
    for envs in [*([env] for env in BABYAI), BABYAI]:
        singles = [numbers(found.get(env, []), "after eval/success") for env in envs]
        end, weak_end = ([[*success(runs, envs).values()]] for runs in (one, weak))
        cells = ["all" if len(envs) > 1 else envs[0], before(one, envs)]
        cells += [seeds_text(singles) if all(singles) else "-", seeds_text(end)]
        rows.append([*cells, seeds_text(weak_end), above(end, singles), above(weak_end, end)])
    return markdown_table([head, *rows])


def above(more: list[list[float]], less: list[list[float]]) -> str:
    enough = all(len(task) > 1 for task in more + less)
    return signed(*difference(more, less)) if enough else "-"


def turns_table(found: dict[str, list[Run]]) -> str:
    """Return the table of what the policies were trained on, with the critic's warm-up."""
    rows = []
    for label, names in (
        ("single policies, together", BABYAI),
        (UNIFORM.label, [UNIFORM.name]),
        (WEAK.label, [WEAK.name]),
    ):
        if all(name in found for name in names):
            turns = sum(spent(found[name][0], "turns")[-1] for name in names)
            minutes = sum(fmean(sum(run.minutes().values()) for run in found[n]) for n in names)
            rows.append([label, f"{turns:,.0f}", f"{minutes:.1f}"])
    return markdown_table([["", "turns of a seed", "minutes of a seed"], *rows])


def baba_table(found: dict[str, list[Run]]) -> str:
    trained, without, new = (found.get(row.name, []) for row in (ALL, WITHOUT, NEW))
    groups = [("all", BABA), ("new", HELD_OUT), ("others", OTHERS), *((env, [env]) for env in BABA)]
    head = ["", "", "before", ALL.label, WITHOUT.label]
    rows = []
    for name, envs in groups:
        known = [success(without if env in OTHERS else new, [env]) for env in envs]
        seeds = [seed for seed in known[0] if all(seed in task for task in known)]
        means = [fmean(task[seed] for task in known) for seed in seeds]
        mark = "new" if len(envs) == 1 and envs[0] in HELD_OUT else ""
        ends = seeds_text([[*success(trained, envs).values()]])
        rows.append([name, mark, before(trained, envs), ends, seeds_text([means])])
    return markdown_table([head, *rows])
