"""The runs of the comparison with TRL: their settings, directories and learning rates."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from paper.comparisons import DUAL
from paper.methods import (
    GROUP_FLAGS,
    SEARCH_SEEDS,
    SEEDS,
    Method,
    Task,
    initial_flags,
    run_name,
)
from paper.quantities import final_evaluation
from paper.rows import PaperRow
from paper.runs import PROJECT, PlannedRun, read_run, relative

TASKS = [Task("tools-calculator", 20, 60), Task("babyai-goto", 40, 40)]
MODELS = {"tools-calculator": "models/tiny-calculator", "babyai-goto": "models/tiny"}
METHODS = [
    DUAL,
    Method("grpo", "GRPO (ours)", {"advantages": "grpo"} | GROUP_FLAGS, critic=False, groups=True),
    Method("trl", "GRPO of TRL, one step a batch"),
    Method("trl-steps", "GRPO of TRL, our steps and KL",
           {"epochs": 2, "minibatches": 2, "beta": 0.04}),
]  # fmt: skip
INITIAL = Method("initial", "the initial model")
FACTORS = (1.0, 2.0)  # of the learning rate in the environment's recipe
SEARCH_SEED = SEARCH_SEEDS[0]
# The models' tokenizer has one token for the end of a message with its line break. TRL keeps the
# token that was sampled, the end without the break. So the template that both trainers get leaves
# the break out after the agent's messages, and both histories have the same ids.
BREAK, NO_BREAK = (
    "{{- '<|im_end|>\\n' }}",
    "{{- '<|im_end|>' + ('' if m.role == 'assistant' else '\\n') }}",
)


@dataclass(frozen=True)
class PeerRun:
    """One run. factor: multiple of the learning rate in the environment's recipe"""

    task: Task
    method: Method
    factor: float
    seed: int

    @property
    def name(self) -> str:
        """The same for all seeds."""
        return run_name(self.task, self.method, self.factor)


class Plan:
    """The runs of the comparison, and the learning rates that the search has chosen so far."""

    tasks, methods, factors = TASKS, METHODS, FACTORS

    def __init__(self, folder: Path):
        self.folder = folder

    def search_runs(self, task: Task) -> list[PeerRun]:
        """Return the runs of the learning rate search."""
        searched = [method for method in METHODS if method is not DUAL]
        return [PeerRun(task, method, factor, SEARCH_SEED)
                for method in searched for factor in FACTORS]  # fmt: skip

    def initial_run(self, task: Task) -> PeerRun:
        """Return the evaluation of the initial model."""
        return PeerRun(task, INITIAL, FACTORS[0], 1)

    def final_runs(self, task: Task) -> list[PeerRun]:
        """Return the runs of the comparison whose learning rates have been chosen."""
        chosen = {method: self.factor(task, method) for method in METHODS}
        return [PeerRun(task, method, factor, seed) for seed in SEEDS
                for method, factor in chosen.items() if factor]  # fmt: skip

    def names(self) -> dict[str, Task]:
        """Return name -> task of every run that may be made."""
        return {run_name(task, method, factor): task for task in TASKS
                for method in [*METHODS, INITIAL] for factor in FACTORS}  # fmt: skip

    def path(self, run: PeerRun) -> Path:
        return self.folder / f"{run.name}-seed{run.seed}"

    def found(self, run: PeerRun):
        """Return the recorded run, or None if there is none."""
        path = self.path(run)
        return read_run(path) if path.exists() else None

    def tried(self, task: Task, method: Method) -> dict[float, float]:
        """Return factor -> success in the evaluation, for the finished runs of the search."""
        found = {f: self.found(PeerRun(task, method, f, SEARCH_SEED)) for f in FACTORS}
        ends = {f: final_evaluation(run) for f, run in found.items() if run}
        return {f: end["eval/success"] for f, end in ends.items() if end}

    def factor(self, task: Task, method: Method) -> float | None:
        """Return the best factor, in a tie the first one; None until the search is finished."""
        if method is DUAL:
            return FACTORS[0]
        tried = self.tried(task, method)
        return max(FACTORS, key=tried.get) if len(tried) == len(FACTORS) else None

    def searched(self, task: Task) -> bool:
        return all(self.factor(task, method) for method in METHODS)

    def of(self, task: Task, method: Method) -> dict[int, object]:
        """Return seed -> recorded run, for the runs that have begun."""
        factor = self.factor(task, method)
        found = {} if factor is None else {
            seed: self.found(PeerRun(task, method, factor, seed))
            for seed in SEEDS
        }  # fmt: skip
        return {seed: run for seed, run in found.items() if run}

    def before(self, task: Task) -> PlannedRun:
        """Return the evaluation of the initial model as `compared.task_table` reads it."""
        flags = initial_flags("embedded", task) | {"model": relative(self.model(task))}
        path = self.path(self.initial_run(task))
        return PlannedRun(PaperRow(task.env, INITIAL.label, path.name), 1, path, flags)

    def model(self, task: Task) -> Path:
        return self.folder / Path(MODELS[task.env]).name

    def make_model(self, task: Task) -> None:
        """Copy the embedded model, with a chat template that suits both trainers."""
        if not self.model(task).exists():
            shutil.copytree(PROJECT / MODELS[task.env], self.model(task))
            template = self.model(task) / "chat_template.jinja"
            template.write_text(template.read_text().replace(BREAK, NO_BREAK))
