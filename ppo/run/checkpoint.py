"""Checkpoints of a run: the whole state of training, and model/.

A checkpoint is a folder `update-NNNNNN` with state.pt, the files that DeepSpeed writes where it
shards the model, and SHA256SUMS (`sha256sum -c` checks it). It is written aside, synced and then
renamed, so whatever interrupts a save leaves the one before whole. state.pt is loaded with
weights_only, so nothing in it is executed. Rank 0 writes; all ranks share the directory.
Environments are not stored but played again: with equal seeds and responses they do the same.
"""

import hashlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from ppo.errors import RunError
from ppo.run.directory import logs
from storage.ranks import ALONE, Ranks

KEPT = 3  # checkpoints; older ones are deleted


class Checkpoints:
    """Of one run: `restore` the newest, `mark` the state before an update, `save` what was marked.

    state: what the newest whole checkpoint holds; None where the run does not go on from one
    """

    def __init__(self, args, run: Path, ranks: Ranks, tokenizer):
        self.args, self.run, self.ranks, self.tokenizer = args, run, ranks, tokenizer
        self.state = load_checkpoint(run) if args.resume else None
        self.saved = self.state and self.state["update"]  # update of the newest saved state

    def restore(self, **parts) -> int:
        """Put the saved state into `parts` (name -> object); returns the update that comes next."""
        self.parts = parts
        return restore(self.run, self.state, parts)

    def places(self, mine: range) -> list[dict] | None:
        """Where the environments `mine` of this rank were; None at the beginning of a run."""
        if self.state is None:
            return None
        envs = self.state["envs"]
        if len(envs) != self.args.n_env:
            raise ValueError(
                f"--n-env {self.args.n_env}: the resumed run has {len(envs)} environments"
            )
        return [envs[i] for i in mine]

    def mark(self, update: int, envs) -> None:
        """Note the state before update `update`; nothing is written."""
        self.marked = snapshot(self.run, update, self.parts | {"envs": envs})

    def due(self, last: bool) -> bool:
        """Whether the marked state is to be saved (last: no update follows)."""
        update = self.marked["update"]
        saved_already = self.state is not None and update == self.state["update"]
        on_time = update % self.args.save_interval == 0 and not saved_already
        return (last or on_time) and not self.args.eval_only

    def save_marked(self) -> bool:
        """Save the state that was marked, unless that is done; returns whether it is saved now."""
        if self.args.eval_only:
            return False
        if self.marked["update"] != self.saved:
            self.save()
        return True

    def save(self) -> None:
        """Write the state that was marked. Call it before any part of the state changes."""
        agent = self.parts["agent"]
        save_checkpoint(self.run, self.marked, agent, self.tokenizer, self.ranks, keep=KEPT)
        self.saved = self.marked["update"]


def snapshot(run: Path, update: int, parts: dict) -> dict:
    """The state before update `update`. Tensors are not copied: save it before they change.

    parts: name -> object whose state_dict() holds tensors, numbers, texts and containers of them
    """
    return {name: part.state_dict() for name, part in parts.items()} | {
        "update": update,
        "random": torch.get_rng_state(),
        "logs": {path.name: path.stat().st_size for path in logs(run)},
    }


def save_checkpoint(run: Path, state: dict, agent, tokenizer, ranks: Ranks, keep: int) -> None:
    """Save a snapshot, delete all but the newest `keep` checkpoints, and replace model/.

    AutoModelForCausalLM, AutoTokenizer and vLLM load model/ as it is. Called on all ranks.
    RunError: it cannot be written
    """
    state = state | {"envs": ranks.gather(state["envs"])}
    folder = run / "checkpoints" / f"update-{state['update']:06d}"
    with written_aside(folder, ranks) as aside:
        agent.stepper.save(aside)
        ranks.wait()
        if ranks.rank == 0:
            for name in state["logs"]:  # the checkpoint counts on the logs: they are synced, too
                sync(run / name)
            with open(aside / "state.pt", "wb") as file:
                torch.save(state, file)
            files = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file())
            sums = [f"{sha256(aside / name)}  {name}\n" for name in files]
            (aside / "SHA256SUMS").write_text("".join(sums))
    with written_aside(run / "model", ranks) as aside:
        agent.actor_critic.export(aside, ranks.rank == 0)
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

    ValueError: the snapshot belongs to other parts
    """
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
    """Folders of the checkpoints, from old to new."""
    return sorted((run / "checkpoints").glob("update-??????"))


def damaged(path: Path) -> str | None:
    """What is wrong with a checkpoint, if anything."""
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
    """`with written_aside(folder) as aside:` what the ranks write into `aside` becomes `folder`.

    RunError: it could not be written, and `folder` is as it was
    """
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
    except (
        OSError,
        RuntimeError,
        SafetensorError,
    ) as error:  # torch wraps OSError
        shutil.rmtree(aside, ignore_errors=True)
        reasons = [e.strerror for e in (error, error.__context__) if isinstance(e, OSError)]
        reason = reasons[0] if reasons else error
        raise RunError(
            f"cannot write {folder}: {reason}; what was saved before is whole"
        ) from error


def replace(folder: Path, aside: Path, old: Path) -> None:
    """Rename `aside` to `folder`; what was there before is moved to `old` and then deleted."""
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    aside.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, onto the disk."""
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
