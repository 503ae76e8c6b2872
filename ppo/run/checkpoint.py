"""Checkpoints of a run: the whole state of training, and model/.

A checkpoint is a folder `update-NNNNNN` with state.pt, what DeepSpeed writes where it shards, and
SHA256SUMS (`sha256sum -c` checks it). It is written aside, synced and renamed, so whatever
interrupts a save leaves the one before whole. state.pt loads with weights_only: nothing in it is
executed. Of many ranks the first writes; they share the directory. Environments are not stored but
played again: for equal seeds and responses they do the same.
"""

import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from ppo.run.directory import logs
from storage.ranks import ALONE, Ranks


class RunError(RuntimeError):
    """The run cannot go on; its message says all, and what is saved is whole."""


def snapshot(run: Path, update: int, parts: dict) -> dict:
    """The state before update `update`. parts: name -> object with a state_dict() of tensors,
    numbers, texts and containers of them. Tensors are not copied: save it before they change."""
    return {name: part.state_dict() for name, part in parts.items()} | {
        "update": update,
        "random": torch.get_rng_state(),
        "logs": {path.name: path.stat().st_size for path in logs(run)},
    }


def save_checkpoint(
    run: Path, state: dict, keep: int, agent, tokenizer, ranks: Ranks, adapter: bool = False
) -> None:
    """Save a snapshot and forget all but the newest `keep`; replace model/, which
    AutoModelForCausalLM, AutoTokenizer and vLLM load as it is (adapter: PeftModel). Called on all
    ranks. RunError: it cannot be written."""
    state = state | {"envs": ranks.gather(state["envs"])}
    folder = run / "checkpoints" / f"update-{state['update']:06d}"
    with written_aside(folder, ranks) as aside:
        agent.stepper.save(aside)
        ranks.wait()
        if ranks.rank == 0:
            for name in state["logs"]:  # what the checkpoint counts on must be on the disk, too
                sync(run / name)
            with open(aside / "state.pt", "wb") as file:
                torch.save(state, file)
            files = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file())
            sums = [f"{sha256(aside / name)}  {name}\n" for name in files]
            (aside / "SHA256SUMS").write_text("".join(sums))
    with written_aside(run / "model", ranks) as aside:
        agent.actor_critic.export(aside, ranks.rank == 0, adapter)
        if ranks.rank == 0:
            tokenizer.save_pretrained(aside)
    if ranks.rank == 0:
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
def written_aside(folder: Path, ranks: Ranks = ALONE):
    """`with written_aside(folder) as aside:` what all ranks write into `aside` becomes `folder`,
    all of it or nothing. RunError: it could not be written."""
    aside, old = (folder.with_name(folder.name + end) for end in (".tmp", ".old"))
    try:
        if ranks.rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        ranks.wait()
        yield aside
        ranks.wait()
        if ranks.rank == 0:
            for path in aside.rglob("*"):
                sync(path)
            replace(folder, aside, old)
        ranks.wait()
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
