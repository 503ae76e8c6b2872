"""The run directory: args.json, checkpoints/ (the whole state of training) and model/.

A checkpoint is a folder `update-NNNNNN` with state.pt, what DeepSpeed writes where it shards, and
SHA256SUMS (`sha256sum -c` checks it). It is written aside, synced and renamed, so whatever
interrupts a save leaves the one before whole. state.pt loads with weights_only: nothing in it is
executed. Of many ranks the first writes; they share the directory. Environments are not stored but
played again: for equal seeds and responses they do the same.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from safetensors import SafetensorError

from storage.world import ALONE, World

LOGS = ("metrics", "warmup", "eval", "trajectories", "faults")  # .jsonl, cut back by a resume
PACKAGES = ("torch", "transformers", "gymnasium", "minigrid", "crafter", "numpy", "vllm")


class RunError(RuntimeError):
    """The run cannot go on; its message says all, and what is saved is whole."""


# ---- the directory ------------------------------------------------------------------------------


def choose_run_dir(args: argparse.Namespace, world: World) -> Path:
    """--run-dir or a new name; ValueError if it holds something and is not resumed."""
    name = f"{args.env_name.replace(':', '.')}-{time.strftime('%Y%m%d-%H%M%S')}"
    run = world.first(args.run_dir or Path("runs") / name)
    if args.resume is None and run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise ValueError(
            f"{run} is not empty; go on from it with --resume {run}, or name another --run-dir"
        )
    return run


def start_run_dir(run: Path, args: argparse.Namespace, saved: dict | None, world: World) -> None:
    """Create the directory and write args.json, on the first rank; of a resumed run, cut the logs
    back to where they were at its checkpoint (None: it has none yet). ValueError: it cannot be
    written, or a log is shorter than it was, and then nothing is cut."""
    world.wait()  # until all have seen what was there
    if world.rank:
        return
    if args.resume and not args.eval_only:
        cut_back(run, saved["logs"] if saved else {})
    try:
        run.mkdir(parents=True, exist_ok=True)
        if args.resume is None or args.override:
            about = json.dumps(describe_run(args), indent=1, default=str)
            (run / "args.json").write_text(about + "\n")
    except OSError as error:
        raise ValueError(f"cannot write to {run}: {error.strerror}") from error


def describe_run(args: argparse.Namespace) -> dict:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            pass
    return {"args": vars(args), "git": git_commit(), "versions": versions}


def git_commit() -> str | None:
    """Of this code, with -dirty where it was edited since; None outside a checkout."""
    words = "describe --always --dirty --abbrev=40 --exclude=*".split()
    try:
        git = subprocess.run(
            ["git", "-C", Path(__file__).parent, *words], capture_output=True, text=True
        )
    except OSError:
        return None
    return git.stdout.strip() or None


# ---- checkpoints --------------------------------------------------------------------------------


def snapshot(run: Path, update: int, parts: dict) -> dict:
    """The state before update `update`. parts: name -> object with a state_dict() of tensors,
    numbers, texts and containers of them. Tensors are not copied: save it before they change."""
    return {name: part.state_dict() for name, part in parts.items()} | {
        "update": update,
        "random": torch.get_rng_state(),
        "logs": {path.name: path.stat().st_size for path in logs(run)},
    }


def save_checkpoint(
    run: Path, state: dict, keep: int, agent, tokenizer, world: World, adapter: bool = False
) -> None:
    """Save a snapshot and forget all but the newest `keep`; replace model/, which
    AutoModelForCausalLM, AutoTokenizer and vLLM load as it is (adapter: PeftModel). Called on all
    ranks. RunError: it cannot be written."""
    state = state | {"envs": world.gather(state["envs"])}
    folder = run / "checkpoints" / f"update-{state['update']:06d}"
    with written_aside(folder, world) as aside:
        agent.stepper.save(aside)
        world.wait()
        if world.rank == 0:
            for name in state["logs"]:  # what the checkpoint counts on must be on the disk, too
                sync(run / name)
            with open(aside / "state.pt", "wb") as file:
                torch.save(state, file)
            files = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file())
            sums = [f"{sha256(aside / name)}  {name}\n" for name in files]
            (aside / "SHA256SUMS").write_text("".join(sums))
    with written_aside(run / "model", world) as aside:
        agent.actor_critic.export(aside, world.rank == 0, adapter)
        if world.rank == 0:
            tokenizer.save_pretrained(aside)
    if world.rank == 0:
        for old in checkpoints(run)[:-keep]:
            shutil.rmtree(old)


def load_checkpoint(run: Path, say=print) -> dict | None:
    """The newest whole checkpoint; None if there is none yet; ValueError if all are damaged."""
    for path in reversed(checkpoints(run)):
        if damage := damaged(path):
            say(f"checkpoint {path} is damaged: {damage}")
        else:
            state = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
            return state | {"agent": state["agent"] | {"folder": path}}
    if checkpoints(run):
        raise ValueError(f"--resume {run}: none of its checkpoints is whole")
    return None


def restore(run: Path, state: dict | None, parts: dict) -> int:
    """Put a snapshot, if there is one, into the parts; returns the update that comes next.
    ValueError: it is not of these."""
    if state is None:
        return 0
    for name, part in parts.items():
        try:
            part.load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"--resume {run}: its checkpoint is of another model or version ({name}: {reason})"
            ) from error
    torch.set_rng_state(state["random"])
    return state["update"]


def cut_back(run: Path, sizes: dict[str, int]) -> None:
    for path in logs(run):
        if path.stat().st_size < sizes.get(path.name, 0):
            raise ValueError(f"--resume {run}: {path} is shorter than it was at the checkpoint")
    for path in logs(run):
        os.truncate(path, sizes.get(path.name, 0))


def logs(run: Path) -> list[Path]:
    return [path for name in LOGS if (path := run / f"{name}.jsonl").exists()]


def checkpoints(run: Path) -> list[Path]:
    """From old to new."""
    return sorted((run / "checkpoints").glob("update-??????"))


def damaged(path: Path) -> str | None:
    """What is wrong with a checkpoint."""
    try:
        lines = (path / "SHA256SUMS").read_text().splitlines()
        sums = [line.split("  ", 1) for line in lines]
        wrong = [name for digest, name in sums if sha256(path / name) != digest]
        if "state.pt" not in [name for _, name in sums]:
            return "SHA256SUMS is not a list of checksums"
        return f"the checksum of {wrong[0]} is wrong" if wrong else None
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except ValueError:
        return "SHA256SUMS is not a list of checksums"


# ---- files --------------------------------------------------------------------------------------


@contextmanager
def written_aside(folder: Path, world: World = ALONE):
    """`with written_aside(folder) as aside:` what all ranks write into `aside` becomes `folder`,
    all of it or nothing. RunError: it could not be written."""
    aside, old = (folder.with_name(folder.name + end) for end in (".tmp", ".old"))
    try:
        if world.rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        world.wait()
        yield aside
        world.wait()
        if world.rank == 0:
            for path in aside.rglob("*"):
                sync(path)
            replace(folder, aside, old)
        world.wait()
    except (OSError, RuntimeError, SafetensorError) as error:  # torch has its own on top
        shutil.rmtree(aside, ignore_errors=True)
        reasons = [e.strerror for e in (error, error.__context__) if isinstance(e, OSError)]
        reason = reasons[0] if reasons else error
        raise RunError(
            f"cannot write {folder}: {reason}; what was saved before is whole"
        ) from error


def replace(folder: Path, aside: Path, old: Path) -> None:
    """Let `aside` be `folder`; `old` is where what was there before goes meanwhile."""
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """Onto the disk, a file or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


# ---- signals ------------------------------------------------------------------------------------


class Stop:
    """SIGTERM and SIGINT ask the loop to save and end (`asked`); a second SIGINT ends it."""

    def __init__(self, world: World = ALONE):
        self.asked, self.world = None, world
        self.before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
        }

    def _ask(self, number: int, frame) -> None:
        self.asked = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        said = f"{self.asked.name}: this phase is finished, then all is saved; Ctrl-C exits at once"
        os.write(2, f"\n{said}\n".encode())  # the loop may be in the middle of a print

    def now(self) -> bool:
        """Whether a rank was asked; `asked` then is the signal on all of them."""
        asked = [signal for signal in self.world.gather([self.asked]) if signal]
        self.asked = asked[0] if asked else None
        return self.asked is not None

    def close(self) -> int:
        """Give the signals back; returns the exit code of a run that they ended or did not."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
        return 128 + self.asked if self.asked else 0
