"""Plans the runs of main.py for a page, and makes them one after another.

Finished runs (those with a final evaluation) are skipped, and interrupted runs are resumed.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from common.flags import spelled
from common.plugins import UserError
from paper.quantities import final_evaluation
from paper.rows import PaperRow
from reports.run_files import Run, read_runs
from run.unused import OF_TRAINING

PROJECT = Path(__file__).resolve().parents[1]
IS_REPOSITORY = (PROJECT / "setup.py").exists()  # pip does not install this file
BASE = PROJECT if IS_REPOSITORY else Path.cwd()  # contains runs/ and docs/


@dataclass
class PlannedRun:
    row: PaperRow
    seed: int
    path: Path
    flags: dict  # flag of main.py -> value


def planned_run(folder: Path, row: PaperRow, seed: int, flags: dict) -> PlannedRun:
    """Return a run in `folder`, named by its row and seed, so that other pages can share it.

    An evaluation leaves out the flags of training, which it would refuse.
    """
    if flags.get("eval_only"):
        flags = {name: value for name, value in flags.items() if name not in OF_TRAINING}
    return PlannedRun(row, seed, folder / f"{row.name}-seed{seed}", flags)


def choose_runs(planned: list[PlannedRun], only: list[str], page: str) -> list[PlannedRun]:
    """Return the runs that match --only. UserError: no run matches"""
    if chosen := matching(planned, only):
        return chosen
    names = ", ".join(dict.fromkeys(run.row.name for run in planned))
    raise UserError(f"--only {' '.join(only)}: no run of {page} matches; its runs: {names}")


def matching(planned: list[PlannedRun], only: list[str]) -> list[PlannedRun]:
    """Return the runs that match one of `only`, or all runs if it is empty.

    A complete name matches itself alone; any other text matches all names that contain it.
    """
    names = {run.row.name for run in planned}

    def matches(name: str, part: str) -> bool:
        return part == name if part in names else part in name

    return [run for run in planned if not only or any(matches(run.row.name, p) for p in only)]


def perform(run: PlannedRun, words: list[str], label: str, dry_run: bool) -> int:
    """Print and execute the command of a run unless it is finished. Returns the exit code."""
    if words and not dry_run:
        words = command_of(run)  # another process may have begun or finished it by now
    print(f"# {label} {relative(run.path)}" + " is finished" * (not words))
    if words:
        print(f"python {shlex.join(words)}", flush=True)
    return execute(words) if words and not dry_run else 0


def command_of(run: PlannedRun, base: Path = BASE) -> list[str]:
    """Return the words after `python`, [] for a finished run.

    base: the directory that the run starts in. UserError: the directory holds another run.
    """
    from run.lock import is_unused  # only here: it loads torch

    path = relative(run.path, base)
    if not run.path.exists() or run.path.is_dir() and is_unused(run.path):
        return ["main.py", *flag_words(run.flags | {"run_dir": path})]
    existing = read_run(run.path)
    if existing is None:
        raise UserError(f"{path} is not a run directory: move it, or take another directory")
    known = existing.settings | {"seed": existing.seed}
    for name, value in run.flags.items():
        wanted = recorded(name, value)
        if name in known and not same_value(known[name], wanted):
            raise UserError(f"{path} was made with {name} {known[name]}, not {wanted}: move it, or "
                             "take another directory")  # fmt: skip
    return [] if final_evaluation(existing) else ["main.py", "--resume", path]


def recorded(name: str, value):
    """Return the value of a flag as a run records it: of --prompts, what the file says."""
    return tomllib.loads(Path(value).read_text(encoding="utf-8")) if name == "prompts" else value


def read_run(path: Path) -> Run | None:
    return next(iter(read_runs([path], [])), None)


def same_value(a, b) -> bool:
    try:
        return float(a) == float(b)
    except (TypeError, ValueError):
        return str(a) == str(b)


def flag_words(flags: dict) -> list[str]:
    """Return the flags as words of a command line."""
    words = [[spelled(n)] + [word_of(v)] * (v is not True) for n, v in flags.items()]
    return sum(words, [])


def word_of(value) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def relative(path: Path, base: Path = BASE) -> str:
    """Return the path relative to `base`, where main.py runs, if it lies there."""
    return str(path.relative_to(base) if path.is_relative_to(base) else path)


def execute(words: list[str]) -> int:
    """Run a command and return its exit code.

    The command receives Ctrl-C from the terminal and SIGTERM from here. It then saves and ends with
    a non-zero code.
    """
    process = subprocess.Popen([sys.executable, PROJECT / words[0], *words[1:]], cwd=BASE)
    on_term = signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    on_int = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.wait()
    finally:
        signal.signal(signal.SIGTERM, on_term)
        signal.signal(signal.SIGINT, on_int)
    return exit_code(process)


def exit_code(process: subprocess.Popen) -> int:
    """Return the exit code of an ended process as a shell does: 128 + the signal that ended it."""
    code = process.returncode
    return code if code >= 0 else 128 - code


def perform_parallel(commands: list[tuple[Path, list[str]]], variables: list[dict]) -> int:
    """Run commands in the working directory, as many at a time as there are `variables`, the
    environment variables of each. Returns 0, or the first exit code that is not.

    commands: the directory of each run, and the words after `python`. The output goes to a file
    beside the directory, with .log after its name. SIGTERM is passed on, and Ctrl-C reaches the
    runs from the terminal: they save and end, and no other run is started.
    """
    waiting, slots, stopped, first = list(commands), [None] * len(variables), [], 0

    def stop(number, frame):
        stopped.append(number)
        for _, process in filter(None, slots):
            if number == signal.SIGTERM:  # the terminal sends Ctrl-C to all by itself
                process.send_signal(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while any(slots) or waiting and not stopped:
            for i, running in enumerate(slots):
                if running and running[1].poll() is not None:
                    code, slots[i] = exit_code(running[1]), None
                    log = relative(log_of(running[0]), Path.cwd())
                    print(f"# {running[0].name}: exit code {code}, {log}", flush=True)
                    first = first or code
                if not slots[i] and waiting and not stopped:
                    path, words = waiting.pop(0)
                    slots[i] = path, start(path, words, variables[i])
            time.sleep(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + stopped[0] if stopped else first


def start(path: Path, words: list[str], variables: dict) -> subprocess.Popen:
    with open(log_of(path), "a", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, PROJECT / words[0], *words[1:]],
            env=os.environ | variables, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.log")
