"""Makes the runs of a sweep, a grid of flags with seeds, and compares them: `turnwise sweep`, or

    python -m sweep FILE.toml [--parallel K] [--number K] [--dry-run]

    seeds = [1, 2, 3]
    [flags]                         # of main.py, for every run
    env-name = "babyai-goto"
    [grid]                          # every combination is tried with every seed
    first-token-weight = [1, 3]

Each run is an ordinary run of main.py in its own directory. Finished runs are skipped and
interrupted runs are resumed, so after an interruption the same command does the rest.
`reports.sweep_table` compares the points of the grid.
"""

import os
import re
import shlex
import sys
import tomllib
from argparse import Namespace
from itertools import product
from pathlib import Path

from arguments import get_args, paper
from common.flags import spelled
from common.nvidia_smi import ask_driver
from common.plugins import UserError
from common.processors import processors
from common.run_file import rewritten
from paper.quantities import final_evaluation
from paper.rows import PaperRow
from paper.runs import (
    PlannedRun,
    command_of,
    flag_words,
    perform_parallel,
    planned_run,
    read_run,
    relative,
)
from reports.curves import write_curves
from reports.program import Program
from reports.sweep_table import sweep_table

KEYS = {"seeds", "runs", "flags", "grid"}
NOT_SWEPT = ("run_dir", "resume", "seed")


def main(argv: list[str] | None = None) -> int:
    program = Program(
        prog="turnwise sweep", description="Make the runs of a grid and compare them."
    )
    add = program.add_argument
    add("file", metavar="FILE", type=Path, help="TOML with [flags], [grid] and seeds")
    at_once = "runs at a time (default: one per GPU, or 1)"
    add("--parallel", type=int, metavar="K", default=max(1, len(gpus())), help=at_once)
    number = "make only the K-th run, from 1, and no page: for job arrays"
    add("--number", type=int, metavar="K", help=number)
    add("--dry-run", action="store_true", help="print the commands and do nothing else")
    return program.run(sweep, argv)


def sweep(args: Namespace) -> int:
    """Make the missing runs, and write the page. Returns the exit code.

    UserError: the file does not describe a sweep, or main.py would refuse a run
    """
    if args.parallel < 1:
        raise UserError(f"--parallel must be from 1, got {args.parallel}")
    folder, planned = plan(args.file)
    chosen = planned
    if args.number is not None:
        if not 1 <= args.number <= len(planned):
            raise UserError(f"--number must be from 1 to {len(planned)}, got {args.number}")
        chosen = [planned[args.number - 1]]
    commands = [command_of(run, Path.cwd()) for run in chosen]  # find conflicts before any run
    for run, words in zip(chosen, commands, strict=True):
        print(f"# {run.path.name}" + " is finished" * (not words))
        if words:
            print(f"python {shlex.join(words)}", flush=True)
    if args.dry_run:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    left = [(r.path, words) for r, words in zip(chosen, commands, strict=True) if words]
    code = perform_parallel(left, environments(args.parallel))
    if args.number is None:
        write_page(folder, planned)
    return code


def plan(file: Path) -> tuple[Path, list[PlannedRun]]:
    """Return the directory of a sweep, and its runs, ordered by seed."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # no TOML, or no UTF-8
        raise UserError(f"{file}: {error}") from error
    if others := content.keys() - KEYS:
        raise UserError(
            f"{file}: unknown {', '.join(sorted(others))}; it has {', '.join(sorted(KEYS))}"
        )
    seeds, grid = content.get("seeds", [1]), content.get("grid", {})
    flags = content.get("flags", {})
    if not (isinstance(grid, dict) and isinstance(flags, dict)):
        raise UserError(f"{file}: [flags] and [grid] are tables of flags")
    lists = [("seeds", seeds), *grid.items()]
    for name, values in lists:
        if not isinstance(values, list) or not values:
            raise UserError(f"{file}: {name} is a list of values, as in {name} = [1, 2]")
    runs = content.get("runs", f"runs/{file.stem}")
    if not isinstance(runs, str):
        raise UserError(f'{file}: runs is a directory, as in runs = "runs/mine"')
    folder = Path(runs).resolve()
    flags = {name.replace("-", "_"): value for name, value in flags.items()}
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    planned = [planned_point(folder, flags, point, seed) for seed in seeds for point in points]
    names = [run.path.name for run in planned]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"{file}: two runs would be called {min(twice)}")
    return folder, planned


def planned_point(folder: Path, flags: dict, point: dict, seed: int) -> PlannedRun:
    """Return the run of a point of the grid.

    UserError: the sweep sets this flag itself. Where main.py would refuse the flags, its line ends
    the program.
    """
    label = ", ".join(f"{name}={value}" for name, value in point.items()) or "run"
    flags = flags | {name.replace("-", "_"): value for name, value in point.items()}
    for name in flags:
        if name in NOT_SWEPT:
            raise UserError(f"a sweep sets {spelled(name)} itself; leave it out")
        if name not in paper():
            raise UserError(f"main.py has no flag {spelled(name)}")
    flags = {name: value for name, value in flags.items() if value is not False}
    parsed = get_args([*flag_words(flags), "--seed", str(seed)], "turnwise sweep", quick=True)
    if parsed.eval_interval == 0:
        raise UserError("the table of a sweep needs evaluations: --eval-interval must be from 1")
    known = {name: getattr(parsed, name) for name in flags if name != "prompts"}
    row = PaperRow(parsed.env_name, label, re.sub(r"[^\w.+=-]+", "_", label))
    return planned_run(folder, row, seed, flags | known | {"seed": parsed.seed})


def gpus() -> list[str]:
    """Return the GPUs that runs may have, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [each for each in visible.split(",") if each]
    return [str(i) for i in range(len(ask_driver().gpus))]


def environments(parallel: int) -> list[dict[str, str]]:
    """Return the variables of each of `parallel` runs at a time: its GPU, or its share of cores."""
    if devices := gpus():
        return [{"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} for i in range(parallel)]
    cores = max(1, processors() // parallel)
    return [{"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(cores))}] * parallel


def write_page(folder: Path, planned: list[PlannedRun]) -> None:
    """Print the table, and write it to sweep.md and the page of curves to index.html."""
    points = [run.row.label for run in planned]
    planned = sorted(planned, key=lambda run: points.index(run.row.label))  # by point
    found = [(run, read_run(run.path) if run.path.exists() else None) for run in planned]
    ends = [(run.row.label, run.seed, final_evaluation(made)) for run, made in found if made]
    text = sweep_table([(label, seed, end) for label, seed, end in ends if end], len(planned))
    with rewritten(folder / "sweep.md", encoding="utf-8") as file:
        file.write(text)
    print(text)
    if paths := [run.path for run, made in found if made]:
        print(relative(write_curves(paths, folder), Path.cwd()))


if __name__ == "__main__":
    sys.exit(main())
