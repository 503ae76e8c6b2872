"""Reproduces the paper's tables and figures: makes their runs, then writes a Markdown page.

    python -m ppo.paper.reproduce table1|table2|table3|figure3|figure4 [--scale paper|embedded]
        [--dry-run] [--seeds 1 2 3] [--only NAME ...] [--runs DIR] [--out DIR] [-- FLAGS OF main.py]

Runs are processes, one after another. A run with its final evaluation is skipped, and one that was
begun goes on with --resume, so after an interruption the same command does the rest. To use two
cores, start it twice with different --seeds (table1: --only), then once more with all of them for
the page. `tables` says what is run, and `results` writes the page.
"""

import argparse
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ppo.paper.results import final_evaluation, write_results
from ppo.paper.tables import SCALES, TABLES, PaperRow, PaperTable, flags_of
from ppo.reports.charts import import_figure
from ppo.reports.program import Program
from ppo.reports.run_files import Run, read_runs

REPOSITORY = Path(__file__).resolve().parents[2]
RUNS = REPOSITORY / "runs" / "reproduce"
SEEDS = [1, 2, 3]


@dataclass
class PlannedRun:
    row: PaperRow
    seed: int
    path: Path
    flags: dict  # flag of main.py -> value


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    at = words.index("--") if "--" in words else len(words)
    work = lambda args: reproduce(args, extra_flags(words[at + 1 :], args.runs))
    return make_program().run(work, words[:at])


def make_program() -> Program:
    program = Program(
        prog="ppo.paper.reproduce",
        description="Reproduce a table or figure of the paper. Flags after -- go to main.py.",
    )
    add = program.add_argument
    add("name", choices=TABLES, help="the table or figure")
    add("--scale", choices=SCALES, default="embedded", help="models (default: embedded)")
    add("--dry-run", action="store_true", help="print the commands and do nothing")
    add("--seeds", type=int, nargs="+", default=SEEDS, help="of training (default: 1 2 3)")
    add("--only", nargs="+", default=[], help="run only these: names of runs, or parts of names")
    add("--runs", type=Path, default=RUNS, help="directory of the runs (default: runs/reproduce)")
    add("--out", type=Path, help="directory of the page (default: --runs or else docs/results)")
    return program


def out_folder(args: argparse.Namespace) -> Path:
    """--out or its default. Only the standard runs are results of this project."""
    standard = args.runs.resolve() == RUNS
    return args.out or (REPOSITORY / "docs" / "results" if standard else args.runs)


def extra_flags(words: list[str], runs: Path) -> dict:
    """`--name value`, `--name=value` and `--name` as a dict. ValueError: a word belongs to no flag,
    a flag is set by this program, or the runs would lie among the standard ones."""
    flags, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            flags[name] = value if equals else True
        elif name and flags[name] is True:
            flags[name] = word
        else:
            raise ValueError(f"{word!r} after -- is no flag of main.py")
    for name in ("run_dir", "resume", "env_name", "seed", "eval_only"):
        if name in flags:
            raise ValueError(f"{flag_words({name: True})[0]} cannot be given after --")
    if flags and runs.resolve() == RUNS:
        raise ValueError("flags after -- make other runs: give them a directory with --runs")
    return flags


def reproduce(args: argparse.Namespace, extra: dict) -> int:
    """Make the runs that are missing and write the page. Returns the exit code."""
    table, out = TABLES[args.name], out_folder(args)
    planned = plan_runs(args, table, extra)
    chosen = choose_runs(planned, args)
    commands = [command_of(run) for run in chosen]  # a conflict shows before the first one runs
    if not args.dry_run:
        check_machine(args.scale, table, [out, args.runs])
    code = 0
    for number, (run, words) in enumerate(zip(chosen, commands, strict=True), 1):
        print(f"# {number}/{len(chosen)} {relative(run.path)}" + " is finished" * (not words))
        if words:
            print(f"python {shlex.join(words)}", flush=True)
        if words and not args.dry_run:
            code = execute(words)
        if code:
            break
    if args.dry_run:
        return 0
    path = out / f"{args.name}-{args.scale}.md"
    about = f"{SCALES[args.scale]['about']}. {made_by(args, extra)}"
    write_results(path, table, about, [(r.row, r.seed, read_run(r.path)) for r in planned])
    print(path)
    return code


def plan_runs(args: argparse.Namespace, table: PaperTable, extra: dict) -> list[PlannedRun]:
    """All runs of a table. Evaluations of the initial model need one seed only."""
    seeds = list(dict.fromkeys(args.seeds)) if table.trained else [1]
    folder = args.runs.resolve() / args.scale
    return [
        PlannedRun(row, seed, folder / f"{row.name}-seed{seed}",
                   flags_of(args.scale, table, row, seed) | extra)
        for row in table.rows for seed in seeds
    ]  # fmt: skip


def choose_runs(planned: list[PlannedRun], args: argparse.Namespace) -> list[PlannedRun]:
    """The runs that --only names. A whole name stands for itself alone, a part for all names that
    contain it. ValueError: nothing fits."""
    names = dict.fromkeys(run.row.name for run in planned)
    fits = lambda name, part: part == name if part in names else part in name
    chosen = [
        run for run in planned
        if not args.only or any(fits(run.row.name, part) for part in args.only)
    ]  # fmt: skip
    if not chosen:
        raise ValueError(f"--only {' '.join(args.only)}: nothing of {args.name} is called so; "
                         f"its runs: {', '.join(names)}")  # fmt: skip
    return chosen


def made_by(args: argparse.Namespace, extra: dict) -> str:
    words = ["python", "-m", "ppo.paper.reproduce", args.name, "--scale", args.scale]
    if args.seeds != SEEDS:
        words += ["--seeds", *map(str, args.seeds)]
    if extra:
        words += ["--runs", relative(args.runs.resolve()), "--", *flag_words(extra)]
    return f"Made by `{shlex.join(words)}`; with --dry-run it prints the commands of the runs"


def check_machine(scale: str, table: PaperTable, folders: list[Path]) -> None:
    """ValueError or OSError for what would otherwise show only after hours."""
    if scale == "paper":
        import torch  # takes seconds, which a dry run need not wait for

        if not torch.cuda.is_available():
            raise ValueError("--scale paper needs a CUDA device; --dry-run prints its commands")
    if table.pictures:
        import_figure()
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)


def command_of(run: PlannedRun) -> list[str]:
    """The words after `python`, none for a finished run. ValueError: its place holds another."""
    path = relative(run.path)
    if not run.path.exists() or run.path.is_dir() and not any(run.path.iterdir()):
        return ["main.py", *flag_words(run.flags | {"run_dir": path})]
    there = read_run(run.path)
    if there is None:
        raise ValueError(f"{path} is not the directory of a run: move it, or name another --runs")
    known = there.settings | {"seed": there.seed}
    for name, value in run.flags.items():
        if name in known and not same_value(known[name], value):
            raise ValueError(f"{path} was made with {name} {known[name]}, not {value}: move it, or "
                             "name another --runs")  # fmt: skip
    return [] if final_evaluation(there) else ["main.py", "--resume", path]


def read_run(path: Path) -> Run | None:
    return next(iter(read_runs([path], [])), None)


def same_value(a, b) -> bool:
    try:
        return float(a) == float(b)
    except (TypeError, ValueError):
        return str(a) == str(b)


def flag_words(flags: dict) -> list[str]:
    """The flags as words of a command line."""
    words = [[f"--{n.replace('_', '-')}"] + [str(v)] * (v is not True) for n, v in flags.items()]
    return sum(words, [])


def relative(path: Path) -> str:
    """The path as main.py gets it, which runs in the repository."""
    return str(path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path)


def execute(words: list[str]) -> int:
    """Run a command to its end, and return its exit code. The command gets Ctrl-C from the terminal
    and SIGTERM from here; it then saves and ends with a code that is not 0."""
    process = subprocess.Popen([sys.executable, *words], cwd=REPOSITORY)
    hand_on = lambda number, frame: process.send_signal(number)
    on_term = signal.signal(signal.SIGTERM, hand_on)
    on_int = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGTERM, on_term)
        signal.signal(signal.SIGINT, on_int)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
