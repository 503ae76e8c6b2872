"""Makes one run of the comparison with TRL, as a process of main.py or of `trl_grpo`."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.plan import INITIAL, PeerRun, Plan
from paper.methods import LRS, evaluation_episodes, family_of, method_flags
from paper.quantities import final_evaluation
from paper.rows import PaperRow
from paper.runs import PROJECT, PlannedRun, command_of, flag_words, perform, relative


def make(plan: Plan, run: PeerRun, trl: Path | None, dry: bool) -> int:
    """Make a run unless it is finished. Returns an exit code.

    trl: the folder that TRL is installed in; dry: print the commands and do nothing
    """
    path, label = plan.path(run), run.method.label
    if run.method is INITIAL:
        initial = plan.before(run.task)
        return perform(initial, command_of(initial), label, dry)
    if not run.method.name.startswith("trl"):
        flags = method_flags("embedded", run.task, run.method, run.factor, run.seed)
        flags["model"] = relative(plan.model(run.task))
        ours = PlannedRun(PaperRow(run.task.env, label, path.name), run.seed, path, flags)
        return perform(ours, command_of(ours), label, dry)
    found = plan.found(run)
    if found and final_evaluation(found):
        print(f"# {label} {relative(path)} is finished")
        return 0
    return make_with_trl(plan, run, trl, dry)


def make_with_trl(plan: Plan, run: PeerRun, trl: Path | None, dry: bool) -> int:
    """Train with TRL and evaluate the model with main.py. Returns an exit code."""
    path, task = plan.path(run), run.task
    training = {
        "env_name": task.env,
        "model": relative(plan.model(task)),
        "seed": run.seed,
        "lr": run.factor * LRS["embedded"][family_of(task)],
        "turns": task.turns,
        "run_dir": relative(path),
    }
    evaluation = {
        "env_name": task.env,
        "model": relative(path / "model"),
        "engine": "transformers",
        "eval_episodes": evaluation_episodes(task, run.seed),
        "run_dir": relative(path / "evaluation"),
    }
    train = ["-m", "benchmarks.peers.trl_grpo", *flag_words(training | run.method.flags)]
    evaluate = ["main.py", "--eval-only", *flag_words(evaluation)]
    if not dry and path.exists():
        shutil.rmtree(path)  # an interrupted run starts again: it takes minutes
    code = execute(train, trl, dry) or execute(evaluate, None, dry)
    if not code and not dry:
        adopt_evaluation(path)
    return code


def execute(words: list[str], trl: Path | None, dry: bool) -> int:
    print(f"python {shlex.join(words)}", flush=True)
    path = {"PYTHONPATH": str(trl)} if trl else {}
    command = [sys.executable, *words]
    return 0 if dry else subprocess.run(command, cwd=PROJECT, env=os.environ | path).returncode


def adopt_evaluation(path: Path) -> None:
    """Write main.py's evaluation of TRL's model as the final evaluation of TRL's run."""
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    line = json.loads((path / "evaluation" / "eval.jsonl").read_text().splitlines()[-1])
    (path / "eval.jsonl").write_text(json.dumps(line | {"update": last["update"]}) + "\n")
