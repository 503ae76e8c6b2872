"""Interrupts runs and saves, and compares them with those that nobody interrupted.

    python interruptions.py run REQUEST      # JSON; see `Story`
    python interruptions.py save FOLDER      # kills before each operation of a save

What is interrupted is a fork of this process, which has one thread and has imported the program. An
event of such a process is an operation on the run directory, or the beginning of a phase; the
interruption comes before it. It is the number of a signal, WORKER (one of the environment workers
is killed) or FULL (from then on nothing can be written into the run directory). The output is JSON
lines.
"""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from safetensors.torch import save_file

import main
from common.ranks import ALONE
from common.signals import ENDING
from run import checkpoint
from run.checkpoint import Checkpoints
from run.saved import checkpoints, damaged, model_update, number_of
from run.snapshot import save_snapshot
from run.timer import Timer

OPERATIONS = {
    "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink",
    "os.truncate", "shutil.copyfile", "shutil.move", "shutil.rmtree",
}  # fmt: skip
GROWING = {"open", "os.mkdir", "os.link", "os.symlink", "shutil.copyfile"}  # need room on the disk
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
LOGS = ("metrics", "eval", "warmup", "trajectories")  # .jsonl
FULL, WORKER = "full disk", "worker"


class Events:
    """Counts the events of this process, and interrupts it before one of them.

    how: the number of a signal, WORKER or FULL
    moment: number of that event; 0: none
    listed: a file that gets a line for each event
    """

    def __init__(self, run: Path, how: int | str, moment: int, listed: Path):
        self.run, self.how, self.moment, self.count = str(run), how, moment, 0
        self.listed = open(listed, "w", buffering=1)  # noqa: SIM115
        begin = Timer.__call__

        def phase(timer, name, progress=None):
            self.happens(f"phase {name}")
            return begin(timer, name, progress)

        Timer.__call__ = phase
        sys.addaudithook(self.audit)

    def audit(self, event: str, details: tuple) -> None:
        path = details[0] if details and isinstance(details[0], str | os.PathLike) else ""
        writes = event == "open" and isinstance(details[2], int) and details[2] & WRITES
        if (event in OPERATIONS or writes) and os.fspath(path).startswith(self.run):
            self.happens(f"{event} {os.fspath(path)[len(self.run) :]}")
            if self.how == FULL and 0 < self.moment <= self.count and event in GROWING:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def happens(self, event: str) -> None:
        self.count += 1
        self.listed.write(f"{event}\n")
        if self.count != self.moment:
            return
        if self.how == WORKER:
            for worker in multiprocessing.active_children()[:1]:
                worker.kill()
        elif self.how != FULL:
            os.kill(os.getpid(), self.how)


def forked(program: Callable[[], int], output: Path) -> int:
    """Run a program in a fork. Returns its exit code; -signal if that killed it."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        code = program()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def outcome(run: Path, without: tuple[str, ...]) -> dict:
    """Return all that a run has computed, and the names of its files.

    without: prefixes of the metrics that may differ
    """
    found = {}
    for name in LOGS:
        path = run / f"{name}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        records = [json.loads(line) for line in lines]
        found[name] = [{k: v for k, v in r.items() if not k.startswith(without)} for r in records]
    found["weights"] = (run / "model" / "model.safetensors").read_bytes()
    found["files"] = sorted(names_in(run))
    return found


def numbers(found: dict) -> dict:
    """Return for each log how many records of an `outcome` each update has."""
    return {name: Counter(record["update"] for record in found[name]) for name in LOGS}


def names_in(run: Path) -> set[str]:
    """Return the names of the files and folders of a run, but not TensorBoard's, nor the lock."""
    names = {str(path.relative_to(run)) for path in run.rglob("*")}
    return {name for name in names if not name.startswith(("events.out", "lock"))}


class Story:
    """A run that is interrupted again and again, and resumed each time. Once it is finished it is
    compared, and another one begins. It ends with a finished one.

    folder: an empty one; flags: of main.py; without: prefixes of metrics that may differ
    """

    def __init__(self, folder: str, flags: list[str], without: list[str]):
        self.folder, self.flags, self.without = Path(folder), flags, ("time/", *without)
        self.workers_died = False
        self.run, self.output = self.folder / "run", self.folder / "output"
        assert self.proceed(0, 0) == 0, self.output.read_text()
        self.whole, self.moments = outcome(self.run, self.without), len(self.events())
        shutil.rmtree(self.run)

    def events(self) -> list[str]:
        """Return the events of the last process."""
        return (self.folder / "events").read_text().splitlines()

    def proceed(self, how: int | str, moment: int) -> int:
        """Begin the run, or go on with it, and interrupt it at this moment."""
        words = ["--resume", "auto", "--run-dir", str(self.run), *self.flags]
        if (self.run / "args.json").exists():
            words = ["--resume", str(self.run)]
        listed = self.folder / "events"
        return forked(
            lambda: Events(self.run, how, moment, listed) and main.program(words), self.output
        )

    def stop(self, how: int | str, moment: int) -> None:
        """Let the run proceed up to this moment, and print what happened."""
        self.output.unlink(missing_ok=True)
        code = self.proceed(how, moment)
        text, events = self.output.read_text(), self.events()
        ends = {FULL: [0, 1], WORKER: [0]}.get(how) or [0, -how, 128 + how]
        right = code in ends and "Traceback" not in text
        self.workers_died |= how == WORKER
        tell(how=how, event=events[:moment][-1:], code=code, output="" if right else text)
        if code == 0:
            self.compare()

    def each(self) -> Iterator[tuple[int, int]]:
        """Yield a kill before each event, and all signals before every tenth, each followed by a
        process that ends the run."""
        for moment in range(1, 1 + self.moments):
            signals = [int(number) for number in ENDING] if moment % 10 == 0 else []
            for number in (signal.SIGKILL, *signals):
                yield number, moment
                yield number, 0

    def compare(self) -> None:
        """Print where the finished run differs, and delete it.

        A worker's death costs its episodes, which faults.jsonl has. Then only the numbers of
        updates and turns are compared.
        """
        whole, found = self.whole, outcome(self.run, self.without)
        if self.workers_died and (self.run / "faults.jsonl").exists():
            whole, found = numbers(whole), numbers(found)
        for name in [name for name in found if found[name] != whole[name]]:
            both = [repr(each[name])[:2000] for each in (whole, found)]
            tell(differs=name, whole=both[0], found=both[1])
        tell(compared=len(found))
        shutil.rmtree(self.run)
        self.workers_died = False


class Parts:
    """Stands for an agent and a tokenizer: a save of their files takes no time."""

    def __init__(self):
        self.stepper = self.actor_critic = self

    def save(self, folder: Path) -> None:
        """Write nothing, as without DeepSpeed."""

    def export(self, folder: Path, keep: bool) -> None:
        save_file({"weight": torch.zeros(3)}, folder / "model.safetensors")

    def save_pretrained(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{}")


class Saves:
    """A run directory with one checkpoint, into which another one is saved. Of the two, the first
    one is deleted at the end."""

    def __init__(self, folder: Path):
        self.folder, self.run, self.output = folder, folder / "run", folder / "output"
        checkpoint.KEPT = 1
        self.run.mkdir()
        self.save(1)
        shutil.copytree(self.run, folder / "before")
        self.names = names_in(self.run)
        self.save(2)
        self.names |= names_in(self.run)

    def save(self, update: int) -> int:
        state = {"update": update, "logs": {}, "envs": [], "agent": {}}
        save_snapshot(self.run, state, Parts(), Parts(), ALONE, checkpoint.KEPT, whole=set())
        return 0

    def killed_at(self, moment: int) -> bool:
        """Kill a save at this moment, and print what a resume finds. False: it ended before"""
        shutil.rmtree(self.run)
        shutil.copytree(self.folder / "before", self.run)
        listed = self.folder / "events"
        code = forked(
            lambda: Events(self.run, signal.SIGKILL, moment, listed) and self.save(2), self.output
        )
        args = SimpleNamespace(
            resume=self.run, eval_only=False, env_name="toy", memory="window", engine="auto",
            advantages="dual-gae", zero_stage=0,
        )  # fmt: skip
        Checkpoints(args, self.run, ALONE)
        found = [number_of(path) for path in checkpoints(self.run) if damaged(path) is None]
        tell(
            code=code,
            event=listed.read_text().splitlines()[-1:],
            checkpoints=found,
            model=model_update(self.run),
            strays=sorted(names_in(self.run) - self.names),
        )
        return code != 0


def tell(**facts) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "save":
        saves = Saves(Path(sys.argv[2]))
        list(takewhile(saves.killed_at, count(1)))
    else:
        request = json.loads(sys.argv[2])
        stops = request.pop("stops")
        story = Story(**request)
        if stops == "all":
            stops = list(story.each())
        else:
            stops = [(how, 1 + int(share * story.moments)) for how, share in stops]
            stops.append((signal.SIGKILL, 0))
        tell(moments=story.moments, stops=len(stops))
        for how, moment in stops:
            story.stop(how, moment)
