"""Runs of main.py that make a page: planned as flags, made one after another, found again later.

A run with its final evaluation is skipped, and one that was begun goes on with --resume.
"""

import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from common.plugins import UserError
from paper.quantities import final_evaluation
from paper.rows import PaperRow
from reports.run_files import Run, read_runs

HOME = Path(__file__).resolve().parents[1]
IS_REPOSITORY = (HOME / "setup.py").exists()  # pip does not install this file
WORKPLACE = HOME if IS_REPOSITORY else Path.cwd()  # what runs/ and docs/ lie in


@dataclass
class PlannedRun:
    row: PaperRow
    seed: int
    path: Path
    flags: dict  # flag of main.py -> value


def planned_run(folder: Path, row: PaperRow, seed: int, flags: dict) -> PlannedRun:
    """A run that lies in `folder` under its row's name and seed, where other pages find it, too."""
    return PlannedRun(row, seed, folder / f"{row.name}-seed{seed}", flags)


def choose_runs(planned: list[PlannedRun], only: list[str], of: str) -> list[PlannedRun]:
    """The runs that --only names. ValueError: nothing fits"""
    if chosen := fitting(planned, only):
        return chosen
    names = ", ".join(dict.fromkeys(run.row.name for run in planned))
    raise UserError(f"--only {' '.join(only)}: nothing of {of} is called so; its runs: {names}")


def fitting(planned: list[PlannedRun], only: list[str]) -> list[PlannedRun]:
    """The runs that --only names, all if it names none. A whole name stands for itself alone, a
    part for all names that contain it."""
    names = {run.row.name for run in planned}
    fits = lambda name, part: part == name if part in names else part in name
    return [run for run in planned if not only or any(fits(run.row.name, part) for part in only)]


def perform(run: PlannedRun, words: list[str], place: str, dry_run: bool) -> int:
    """Print the command of a run, none if it is finished, and execute it. Returns its exit code."""
    print(f"# {place} {relative(run.path)}" + " is finished" * (not words))
    if words:
        print(f"python {shlex.join(words)}", flush=True)
    return execute(words) if words and not dry_run else 0


def command_of(run: PlannedRun) -> list[str]:
    """The words after `python`, none for a finished run. ValueError: its place holds another."""
    path = relative(run.path)
    if not run.path.exists() or run.path.is_dir() and not any(run.path.iterdir()):
        return ["main.py", *flag_words(run.flags | {"run_dir": path})]
    there = read_run(run.path)
    if there is None:
        raise UserError(f"{path} is not the directory of a run: move it, or name another --runs")
    known = there.settings | {"seed": there.seed}
    for name, value in run.flags.items():
        if name in known and not same_value(known[name], value):
            raise UserError(f"{path} was made with {name} {known[name]}, not {value}: move it, or "
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
    """The path as main.py gets it, which runs in WORKPLACE."""
    return str(path.relative_to(WORKPLACE) if path.is_relative_to(WORKPLACE) else path)


def execute(words: list[str]) -> int:
    """Run a command to its end, and return its exit code. The command gets Ctrl-C from the terminal
    and SIGTERM from here; it then saves and ends with a code that is not 0."""
    process = subprocess.Popen([sys.executable, HOME / words[0], *words[1:]], cwd=WORKPLACE)
    hand_on = lambda number, frame: process.send_signal(number)
    on_term = signal.signal(signal.SIGTERM, hand_on)
    on_int = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGTERM, on_term)
        signal.signal(signal.SIGINT, on_int)
    return code if code >= 0 else 128 - code
