"""The paper's tables and figures: prints and runs their commands, then writes a Markdown table.

    python -m ppo.paper.reproduce table1|table2|table3|figure3|figure4 [--scale paper|embedded]
        [--dry-run] [--seeds 1 2 3] [--only NAME ...] [--runs DIR] [--out DIR] [-- FLAGS OF main.py]

Every run is a process of its own, one after another. A run that has its final evaluation is
skipped, one that was begun goes on with --resume: after an interruption the same command does the
rest. To use two cores, start it twice with different --seeds (table1: --only), then once more with
all of them for the table. What is run is data in `tables`, how numbers are put together in
`results`.
"""

import argparse
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ppo.paper.results import final_evaluation, write_results
from ppo.paper.tables import SCALES, TABLES, flags_of
from ppo.reports.curves import Run, read_runs

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "runs" / "reproduce"
SEEDS = [1, 2, 3]
THREADS = "OMP_NUM_THREADS"  # of the embedded models one is fastest


@dataclass
class Planned:
    row: dict
    seed: int
    path: Path
    flags: dict  # name -> value, of main.py


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    at = words.index("--") if "--" in words else len(words)
    args = get_args(words[:at])
    try:
        return reproduce(args, extra_flags(words[at + 1 :], args.runs))
    except (ValueError, OSError) as error:
        print(f"ppo.paper.reproduce: error: {error}", file=sys.stderr)
        return 2


def get_args(argv: list[str]) -> argparse.Namespace:
    parser = OneLineParser(
        prog="ppo.paper.reproduce",
        description="Runs what a table or figure of the paper takes. Flags after -- go to main.py.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("--scale", choices=SCALES, default="embedded", help="of the models")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, do nothing")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of training")
    parser.add_argument("--only", nargs="+", default=[], help="run these: parts of names of runs")
    parser.add_argument("--runs", type=Path, default=RUNS, help="where the runs go")
    parser.add_argument("--out", type=Path, help="for the table; docs/results, or else --runs")
    args = parser.parse_args(argv)
    standard = args.runs.resolve() == RUNS  # others are no results of this project
    args.out = args.out or (ROOT / "docs" / "results" if standard else args.runs)
    return args


def extra_flags(words: list[str], runs: Path) -> dict:
    """`--name value`, `--name=value` and `--name` as a dict. ValueError: it is something else, a
    flag that is chosen here, or other settings in the place of the runs without any."""
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
            raise ValueError(f"{typed(name, True)[0]} cannot be given after --")
    if flags and runs.resolve() == RUNS:
        raise ValueError("flags after -- make other runs: give them a directory with --runs")
    return flags


def reproduce(args: argparse.Namespace, extra: dict) -> int:
    """Run what is missing and write the table. Returns the exit code."""
    table = TABLES[args.name]
    planned = plan(args, table, extra)
    names = dict.fromkeys(run.row["name"] for run in planned)
    chosen = [run for run in planned if is_chosen(run, args.only, names)]
    if not chosen:
        raise ValueError(f"--only {' '.join(args.only)}: nothing of {args.name} is called so; "
                         f"its runs: {', '.join(names)}")  # fmt: skip
    commands = [command(run) for run in chosen]  # a run that does not fit shows before any begins
    if not args.dry_run:
        check_machine(args, table)
    code = 0
    for number, (run, words) in enumerate(zip(chosen, commands, strict=True), 1):
        print(f"# {number}/{len(chosen)} {shown(run.path)}" + " is finished" * (not words))
        if words:
            print(printed(words, args.scale), flush=True)
        if words and not args.dry_run:
            code = execute(words, args.scale)
        if code:
            break
    if not args.dry_run:
        path = args.out / f"{args.name}-{args.scale}.md"
        about = f"{SCALES[args.scale]['about']}. {made_by(args, extra)}"
        runs = [(run.row, run.seed, read(run.path)) for run in planned]
        write_results(path, table, about, runs)
        print(path)
    return code


def made_by(args: argparse.Namespace, extra: dict) -> str:
    words = ["python", "-m", "ppo.paper.reproduce", args.name, "--scale", args.scale]
    if args.seeds != SEEDS:
        words += ["--seeds", *map(str, args.seeds)]
    if extra:
        words += ["--runs", shown(args.runs.resolve()), "--"]
        words += [word for name, value in extra.items() for word in typed(name, value)]
    return f"Made by `{shlex.join(words)}`; with --dry-run it prints the commands of the runs"


def plan(args: argparse.Namespace, table: dict, extra: dict) -> list[Planned]:
    """Every run of a table; evaluations of the initial model do not depend on the seed."""
    seeds = list(dict.fromkeys(args.seeds)) if table["trained"] else [1]
    folder = args.runs.resolve() / args.scale
    return [
        Planned(row, seed, folder / f"{row['name']}-seed{seed}",
                flags_of(args.scale, table, row, seed) | extra)
        for row in table["rows"] for seed in seeds
    ]  # fmt: skip


def is_chosen(run: Planned, only: list[str], names: dict[str, None]) -> bool:
    """A whole name of `names` is that row's alone; a part is that of all that have it."""
    name = run.row["name"]
    return not only or any(part == name if part in names else part in name for part in only)


def check_machine(args: argparse.Namespace, table: dict) -> None:
    """ValueError or OSError: what would be found missing after hours."""
    if args.scale == "paper":
        import torch  # not for a dry run: it takes seconds

        if not torch.cuda.is_available():
            raise ValueError("--scale paper needs a CUDA device; --dry-run prints its commands")
    if table["pictures"] and importlib.util.find_spec("matplotlib") is None:
        raise ValueError("matplotlib is missing: pip install -e .[report]")
    for folder in (args.out, args.runs):
        folder.mkdir(parents=True, exist_ok=True)


def command(run: Planned) -> list[str]:
    """The words after `python`; none for a finished run. ValueError: what is there is not it."""
    path = shown(run.path)
    if not run.path.exists() or run.path.is_dir() and not any(run.path.iterdir()):
        flags = run.flags | {"run_dir": path}
        return ["main.py", *(word for name, value in flags.items() for word in typed(name, value))]
    there = read(run.path)
    if there is None:
        raise ValueError(f"{path} is not the directory of a run: move it, or name another --runs")
    known = there.settings | {"seed": there.seed}
    for name, value in run.flags.items():
        if name in known and not same(known[name], value):
            raise ValueError(
                f"{path} was made with {name} {known[name]}, not {value}: move it, or name "
                "another --runs"
            )
    return [] if final_evaluation(there) else ["main.py", "--resume", path]


def read(path: Path) -> Run | None:
    return next(iter(read_runs([path], [])), None)


def same(a, b) -> bool:
    try:
        return float(a) == float(b)
    except (TypeError, ValueError):
        return str(a) == str(b)


def typed(name: str, value) -> list[str]:
    return [f"--{name.replace('_', '-')}"] + [str(value)] * (value is not True)


def shown(path: Path) -> str:
    """As main.py is told, which runs in ROOT."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def printed(words: list[str], scale: str) -> str:
    threads = f"{THREADS}={os.environ.get(THREADS, 1)} " * (scale == "embedded")
    return f"{threads}python {shlex.join(words)}"


def execute(words: list[str], scale: str) -> int:
    """Run a command to its end. SIGTERM is handed on to it, SIGINT it has from the terminal: it
    saves and ends with a code that is not 0."""
    threads = {THREADS: "1"} if scale == "embedded" else {}
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=threads | os.environ)
    hand_on = lambda number, frame: process.send_signal(number)
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on),
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
    }
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str):
        sys.stderr.write(f"{self.prog}: error: {message}\n")
        raise SystemExit(2)


if __name__ == "__main__":
    sys.exit(main())
