"""Trains with our trainer and with TRL's on the same environments, and writes docs/results.

    python -m benchmarks.peers.compare --trl DIR

DIR is the folder that TRL was installed into: `benchmarks.peers.trl_grpo` has the command. Each
method but our default is first tried with two learning rates. After an interruption the same
command goes on; the page is written anew after every run. One program, main.py, evaluates all. Two
processes that work at the same time need different --seeds or --only: a run of TRL is not locked.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.peers.page import write_page
from paper.comparisons import DUAL
from paper.methods import (
    GROUP_FLAGS,
    LRS,
    SEARCH_SEEDS,
    Method,
    Task,
    evaluation_episodes,
    family_of,
    initial_flags,
    method_flags,
    run_name,
)
from paper.quantities import final_evaluation
from paper.rows import PaperRow
from paper.runs import PROJECT, PlannedRun, command_of, flag_words, perform, read_run, relative
from reports.charts import import_figure
from reports.program import Program

TASKS = [Task("tools-calculator", 3, 20, 60), Task("babyai-goto", 3, 40, 40)]
MODELS = {"tools-calculator": "models/tiny-calculator", "babyai-goto": "models/tiny"}
METHODS = [
    DUAL,
    Method("grpo", "GRPO (ours)", {"advantages": "grpo"} | GROUP_FLAGS, critic=False, groups=True),
    Method("trl", "GRPO of TRL, one step a batch"),
    Method("trl-steps", "GRPO of TRL, our steps and KL",
           {"epochs": 2, "minibatches": 2, "beta": 0.04}),
]  # fmt: skip
INITIAL = Method("initial", "the initial model")
FACTORS = (1.0, 2.0)  # of the learning rate of the environment's recipe
SEARCH_SEED = SEARCH_SEEDS[0]
# The models' tokenizer has one token for the end of a message with its line break. TRL keeps the
# token that was sampled, the end alone; so both trainers write the agent's messages without the
# break, and the same ids stand in both histories.
BREAK, NO_BREAK = (
    "{{- '<|im_end|>\\n' }}",
    "{{- '<|im_end|>' + ('' if m.role == 'assistant' else '\\n') }}",
)


def main(argv: list[str] | None = None) -> int:
    parser = Program("benchmarks.peers.compare", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--trl", type=Path, default=None, help="the folder that TRL was installed into")
    flag("--seeds", type=int, nargs="*", default=[], help="only these; 101 is that of the search")
    flag("--only", default="", help="only the runs whose names contain this")
    flag("--runs", type=Path, default=PROJECT / "runs" / "peer-trl", help="directories of the runs")
    flag("--out", type=Path, default=PROJECT / "docs" / "results", help="where the page goes")
    flag("--dry-run", action="store_true", help="print the commands, and do nothing")
    flag("--page", action="store_true", help="write the page of what is there, and train nothing")
    return parser.run(compare, argv)


def compare(args) -> int:
    """Make the runs that are missing, and write the page after each. Returns the exit code."""
    plan, page = Plan(args.runs.resolve()), args.out / "peer-trl.md"
    import_figure()
    os.environ["OMP_NUM_THREADS"] = "1"  # of all runs: they are compared by processor time
    names = [run_name(*run) for run in plan.all()]

    def chosen(run):
        return args.only in run_name(*run)

    if not any(map(chosen, plan.all())):
        raise ValueError(f"--only {args.only}: its runs are {', '.join(dict.fromkeys(names))}")
    if not args.dry_run:
        args.out.mkdir(parents=True, exist_ok=True)
    if not args.dry_run and not args.page:
        if args.trl is None and find_spec("trl") is None:
            raise ValueError(
                "TRL is missing: name the folder that it was installed into with --trl"
            )
        for task, *_ in filter(chosen, plan.all()):
            plan.make_model(task)
    stages = [(stage, task) for task in TASKS for stage in (plan.search, plan.first, plan.runs)]
    for stage, task in [] if args.page else stages:
        for method, factor, seed in stage(task):
            if not chosen((task, method, factor)):
                continue
            if args.seeds and seed not in args.seeds:
                continue
            if code := plan.make(task, method, factor, seed, args.trl, args.dry_run):
                return code
            if not args.dry_run:
                write_page(page, plan)
        if args.dry_run and stage == plan.search and not plan.searched(task):
            print(f"# then the comparison on {task.env}, with the rates that this search chooses")
    if not args.dry_run:
        write_page(page, plan)
        print(page)
    return 0


class Plan:
    """The runs of the comparison, and what the search of learning rates has chosen so far."""

    tasks, methods, factors = TASKS, METHODS, FACTORS

    def __init__(self, folder: Path):
        self.folder = folder

    def search(self, task: Task) -> list[tuple]:
        """Method, factor and seed of each run of the search."""
        tried = [method for method in METHODS if method is not DUAL]
        return [(method, factor, SEARCH_SEED) for method in tried for factor in FACTORS]

    def runs(self, task: Task) -> list[tuple]:
        """The same of the comparison itself, as far as the learning rates are chosen."""
        chosen = {method: self.factor(task, method) for method in METHODS}
        return [(method, factor, seed) for seed in range(1, task.seeds + 1)
                for method, factor in chosen.items() if factor]  # fmt: skip

    def first(self, task: Task) -> list[tuple]:
        """The evaluation of the initial model."""
        return [(INITIAL, FACTORS[0], 1)]

    def all(self) -> list[tuple]:
        """Task, method and factor of every run that may be made."""
        return [(task, method, factor) for task in TASKS for method in [*METHODS, INITIAL]
                for factor in FACTORS]  # fmt: skip

    def path(self, task: Task, method: Method, factor: float, seed: int) -> Path:
        return self.folder / f"{run_name(task, method, factor)}-seed{seed}"

    def found(self, task: Task, method: Method, factor: float, seed: int):
        """The run, None if it is not there."""
        path = self.path(task, method, factor, seed)
        return read_run(path) if path.exists() else None

    def tried(self, task: Task, method: Method) -> dict[float, float]:
        """Factor -> success on the panel, of the finished runs of the search."""
        found = {f: self.found(task, method, f, SEARCH_SEED) for f in FACTORS}
        ends = {f: final_evaluation(run) for f, run in found.items() if run}
        return {f: end["eval/success"] for f, end in ends.items() if end}

    def factor(self, task: Task, method: Method) -> float | None:
        """The factor that won the search, of equals the first; None while it goes on."""
        if method is DUAL:
            return FACTORS[0]
        tried = self.tried(task, method)
        return max(FACTORS, key=tried.get) if len(tried) == len(FACTORS) else None

    def searched(self, task: Task) -> bool:
        return all(self.factor(task, method) for method in METHODS)

    def of(self, task: Task, method: Method) -> dict[int, object]:
        """Seed -> run, of those that have begun."""
        factor = self.factor(task, method)
        found = {} if factor is None else {
            seed: self.found(task, method, factor, seed) for seed in range(1, task.seeds + 1)
        }  # fmt: skip
        return {seed: run for seed, run in found.items() if run}

    def before(self, task: Task) -> PlannedRun:
        """The evaluation of the initial model; `compared.task_table` reads it."""
        flags = initial_flags("embedded", task) | {"model": relative(self.model(task))}
        path = self.path(task, INITIAL, FACTORS[0], 1)
        return PlannedRun(PaperRow(task.env, INITIAL.label, path.name), 1, path, flags)

    def model(self, task: Task) -> Path:
        return self.folder / Path(MODELS[task.env]).name

    def make_model(self, task: Task) -> None:
        """Copy the embedded model, with a chat template that both trainers can follow."""
        if not self.model(task).exists():
            shutil.copytree(PROJECT / MODELS[task.env], self.model(task))
            template = self.model(task) / "chat_template.jinja"
            template.write_text(template.read_text().replace(BREAK, NO_BREAK))

    def make(self, task, method, factor: float, seed: int, trl: Path | None, dry: bool) -> int:
        """Make a run if it is not finished. Returns an exit code."""
        path = self.path(task, method, factor, seed)
        if method is INITIAL:
            run = self.before(task)
            return perform(run, command_of(run), method.label, dry)
        if not method.name.startswith("trl"):
            row = PaperRow(task.env, method.label, path.name)
            flags = method_flags("embedded", task, method, factor, seed)
            run = PlannedRun(row, seed, path, flags | {"model": relative(self.model(task))})
            return perform(run, command_of(run), method.label, dry)
        run = self.found(task, method, factor, seed)
        if run and final_evaluation(run):
            print(f"# {method.label} {relative(path)} is finished")
            return 0
        return self.make_with_trl(task, method, factor, seed, trl, dry)

    def make_with_trl(self, task, method, factor, seed, trl: Path | None, dry: bool) -> int:
        """Train with TRL and let main.py judge the model. Returns an exit code."""
        path = self.path(task, method, factor, seed)
        lr = factor * LRS["embedded"][family_of(task)]
        given = {"env_name": task.env, "model": relative(self.model(task)), "seed": seed, "lr": lr}
        given |= {"turns": task.turns, "run_dir": relative(path)} | method.flags
        words = ["-m", "benchmarks.peers.trl_grpo", *flag_words(given)]
        judge = ["main.py", "--eval-only", *flag_words({
            "env_name": task.env, "model": relative(path / "model"), "engine": "transformers",
            "eval_episodes": evaluation_episodes(task, seed),
            "run_dir": relative(path / "evaluation"),
        })]  # fmt: skip
        if not dry and path.exists():
            shutil.rmtree(path)  # it was interrupted, and TRL's part of it takes minutes
        code = execute(words, trl, dry) or execute(judge, None, dry)
        if not code and not dry:
            adopt(path)
        return code


def execute(words: list[str], trl: Path | None, dry: bool) -> int:
    print(f"python {shlex.join(words)}", flush=True)
    path = {"PYTHONPATH": str(trl)} if trl else {}
    command = [sys.executable, *words]
    return 0 if dry else subprocess.run(command, cwd=PROJECT, env=os.environ | path).returncode


def adopt(path: Path) -> None:
    """Write main.py's evaluation of TRL's model as the one that ended TRL's run."""
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    line = json.loads((path / "evaluation" / "eval.jsonl").read_text().splitlines()[-1])
    (path / "eval.jsonl").write_text(json.dumps(line | {"update": last["update"]}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
