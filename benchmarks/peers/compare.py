"""Trains with our trainer and with TRL's on the same environments, and writes docs/results.

    python -m benchmarks.peers.compare --trl DIR

DIR is the folder that TRL is installed in; `benchmarks.peers.trl_grpo` has the command. Each method
except our default is first tried with two learning rates. After an interruption the same command
continues, and the page is rewritten after every run. main.py evaluates all models. If two processes
work at the same time, give them different --seeds or --only, because a run of TRL is not locked.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.peers.page import write_peers
from benchmarks.peers.perform import make
from benchmarks.peers.plan import TASKS, PeerRun, Plan
from common.plugins import UserError
from paper.reproduce import RUNS_FOLDER
from paper.runs import PROJECT
from reports.drawing import import_figure
from reports.program import Program


def main(argv: list[str] | None = None) -> int:
    parser = Program("benchmarks.peers.compare", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--trl", type=Path, default=None, help="the folder that TRL is installed in")
    flag("--seeds", type=int, nargs="*", default=[], help="only these; 101 is the search's seed")
    flag("--only", default="", help="only the runs whose names contain this")
    flag("--runs", type=Path, default=RUNS_FOLDER / "peer-trl", help="directory of the runs")
    flag("--out", type=Path, default=PROJECT / "docs" / "results", help="directory of the page")
    flag("--dry-run", action="store_true", help="print the commands, and do nothing")
    flag("--page", action="store_true", help="write the page from existing runs, train nothing")
    return parser.run(compare, argv)


def compare(args) -> int:
    """Make the missing runs and rewrite the page after each of them. Returns the exit code."""
    plan, page = Plan(args.runs.resolve()), args.out / "peer-trl.md"
    import_figure()
    os.environ["OMP_NUM_THREADS"] = "1"  # for all runs, whose processor times are compared
    names = plan.names()
    tasks = [task for name, task in names.items() if args.only in name]
    if not tasks:
        raise UserError(f"--only {args.only}: the runs are {', '.join(names)}")
    if args.dry_run:
        return make_all(args, plan, page)
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.page:
        if args.trl is None and find_spec("trl") is None:
            raise UserError("TRL is missing: name the folder that it is installed in with --trl")
        for task in tasks:
            plan.make_model(task)
        if code := make_all(args, plan, page):
            return code
    write_peers(page, plan)
    print(page)
    return 0


def make_all(args, plan: Plan, page: Path) -> int:
    """Make the search, the initial evaluation and the comparison on each task, in this order."""
    for task in TASKS:
        if code := make_some(args, plan, page, plan.search_runs(task)):
            return code
        if args.dry_run and not plan.searched(task):
            print(f"# then the comparison on {task.env}, with the rates that this search chooses")
        runs = [plan.initial_run(task), *plan.final_runs(task)]
        if code := make_some(args, plan, page, runs):
            return code
    return 0


def make_some(args, plan: Plan, page: Path, runs: list[PeerRun]) -> int:
    """Make those of the runs that --only and --seeds choose. Returns the first error's code."""
    for run in runs:
        if args.only not in run.name or (args.seeds and run.seed not in args.seeds):
            continue
        if code := make(plan, run, args.trl, args.dry_run):
            return code
        if not args.dry_run:
            write_peers(page, plan)
    return 0


if __name__ == "__main__":
    sys.exit(main())
