"""What critics know in training: `turnwise critic` at three moments of a run on each of four tasks.

A run is one of Table 3 or Table 2 that keeps three checkpoints, after each third of its updates.
"""

import json
from dataclasses import replace
from pathlib import Path

from common.run_file import rewritten
from paper.pages import write_page
from paper.quantities import final_evaluation
from paper.rows import flags_of
from paper.runs import PlannedRun, execute, planned_run, read_run, relative
from paper.tables import TABLES
from reports.critic_page import State, figures, interval, points, shown
from reports.evaluations import markdown_table
from reports.pictures import draw_values

MOMENTS = 3  # the checkpoints that a run keeps
TASKS = {  # name of a row -> its table, and the flags of `turnwise critic`
    "babyai-goto": ("table3", {"episodes": 64, "states": 4, "continuations": 8}),
    "babyai-pick-up-seq-go-to": ("table3", {"episodes": 32, "states": 4, "continuations": 8}),
    "baba-two_room-goto_win": ("table3", {"episodes": 32, "states": 4, "continuations": 8}),
    "crafter": ("table2", {"episodes": 16, "states": 4, "continuations": 4}),
}
ABOUT = """
*Truth* is what a state earns on average when the policy plays on from it, by replay: see [what
the critic knows](../critic.md). *Explained variance* is 1 - Var(truth - expected) / Var(truth),
with the noise of the truth taken out, and with a 95 % bootstrap interval over episodes. 1 is
perfect, and 0 no better than one number for all states. Beside the critic stand what methods
without one expect: the mean return of other episodes from the same turn on, GRPO's group of the
same seed, and GiGPO's turns of that group with the same observation. Each task has one run, so
how much runs differ is not known."""


def plan_critics(
    scale: str, folder: Path, seeds: list[int] | None, extra: dict
) -> list[PlannedRun]:
    """Return the runs. folder: of the runs of a scale; seeds: None for seed 1"""
    planned = []
    for name, (table, _) in TASKS.items():
        row = next(row for row in TABLES[table].rows if row.name == name)
        for seed in dict.fromkeys(seeds or [1]):
            flags = flags_of(scale, TABLES[table], row, seed)
            third = flags["num_updates"] // MOMENTS
            kept = {"num_updates": MOMENTS * third, "save_interval": third}
            flags |= kept | {"eval_interval": MOMENTS * third + 1} | extra
            planned.append(planned_run(folder, replace(row, name=f"{name}-critic"), seed, flags))
    return planned


def write_critics(path: Path, about: str, planned: list[PlannedRun]) -> None:
    """Judge the critics of the finished runs that are not judged yet, and write the page."""
    parts = ["# What critics know in training", f"Ours: {about}.", ABOUT.strip()]
    for run in planned:
        if (found := judged(run)) is not None:
            parts += section(path, run, found)
    write_page(path, *parts)


def judged(run: PlannedRun) -> dict[int, list[State]] | None:
    """Return the states of each checkpoint; None: the run is not finished, or cannot be judged"""
    finished = read_run(run.path)
    if finished is None or not final_evaluation(finished):
        return None
    file = run.path / "critic.json"
    if not file.exists() and execute(["critic.py", relative(run.path), *critic_flags(run)]):
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    return {int(update): [State(**state) for state in states] for update, states in found.items()}


def critic_flags(run: PlannedRun) -> list[str]:
    _, flags = TASKS[run.row.name.removesuffix("-critic")]
    return [word for name, count in flags.items() for word in (f"--{name}", str(count))]


def section(path: Path, run: PlannedRun, found: dict[int, list[State]]) -> list[str]:
    """Return the parts of the page about a run, and draw its picture beside the page."""
    finished = read_run(run.path)
    name = f"{run.row.label}, seed {run.seed}"
    picture = path.with_name(f"{path.stem}-{run.path.name}.png")
    panels = {f"{update} updates": points(states) for update, states in found.items()}
    with rewritten(picture, "wb") as file:
        file.write(draw_values(panels))
    methods = next(iter(found.values()))[0].expected
    table = [["updates", "states", *methods, "critic: correlation", "critic: bias"]]
    for update, states in found.items():
        cells = []
        for method in methods:
            ends = interval(states, method)
            about = f" [{ends[0]:.2f}, {ends[1]:.2f}]" if ends else ""
            cells.append(shown(figures(states, method).explained) + about)
        critic = figures(states, "critic")
        cells += [shown(critic.correlation), f"{critic.bias:+.3f}"]
        table.append([str(update), str(len(states)), *cells])
    end = final_evaluation(finished)
    return [
        f"## {name}",
        f"Explained variance, by `python -m critic RUN {' '.join(critic_flags(run))}`. In the end "
        f"the policy's {run.row.measure} is {end[f'eval/{run.row.measure}']:.3f}. "
        f"Commit {finished.commit}.",
        markdown_table(table),
        f"![V over the truth: {name}]({picture.name})",
    ]
