"""One checkpoint: the whole state of training between two updates, and model/.

A checkpoint is a folder `update-NNNNNN` with state.pt, a copy of args.json, the files that
DeepSpeed writes where it shards the model, and SHA256SUMS (`sha256sum -c` checks it). It is written
aside, synced and then renamed, so whatever interrupts a save leaves the one before whole. state.pt
is loaded with weights_only, so nothing in it is executed. Rank 0 writes; all ranks share the
directory.
Environments are not stored but replayed: equal seeds and responses lead to equal states.
"""

import shutil
from pathlib import Path

import torch

from common.plugins import UserError
from common.ranks import Ranks
from run.card import ARGS, CARD, model_card
from run.files import sha256, sync, written_aside
from run.logs import logs
from run.saved import MODEL_UPDATE, delete_old, model_update


def take_snapshot(run: Path, update: int, parts: dict) -> dict:
    """Return the state after `update` updates. Tensors are not copied: save it before they change.

    parts: name -> object whose state_dict() holds tensors, numbers, texts and containers of them
    """
    return {name: part.state_dict() for name, part in parts.items()} | {
        "update": update,
        "random": torch.get_rng_state(),
        "logs": {path.name: path.stat().st_size for path in logs(run)},
    }


def load_snapshot(run: Path, state: dict, parts: dict) -> None:
    """Load a snapshot into the parts. UserError: it belongs to other parts"""
    for name, part in parts.items():
        try:
            part.load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"--resume {run}: its checkpoint is of another model or version ({name}: {reason})"
            ) from error
    torch.set_rng_state(state["random"])


def save_snapshot(
    run: Path, state: dict, agent, tokenizer, ranks: Ranks, keep: int, whole: set[Path]
) -> None:
    """Save a snapshot, delete all but the newest `keep` whole checkpoints, and replace model/.

    AutoModelForCausalLM, AutoTokenizer and vLLM load model/ as it is. Called on all ranks.
    whole: the checkpoints that are known to be whole; they are neither written nor checked again
    RunError: it cannot be written
    """
    state = state | {"envs": ranks.gather(state["envs"])}
    folder = run / "checkpoints" / f"update-{state['update']:06d}"
    written = folder in whole
    if not written:
        _write_state(folder, state, agent, ranks)
        whole.add(folder)
    if not written or ranks.first(model_update(run)) != state["update"]:
        _write_model(run, state["update"], agent, tokenizer, ranks)
    if ranks.rank == 0 and not written:
        delete_old(run, keep, whole)


def _write_state(folder: Path, state: dict, agent, ranks: Ranks) -> None:
    with written_aside(folder, ranks) as aside:
        agent.stepper.save(aside)
        ranks.wait()
        if ranks.rank == 0:
            if (folder.parents[1] / ARGS).exists():  # the run survives the loss of this file
                shutil.copyfile(folder.parents[1] / ARGS, aside / ARGS)
            for name in state["logs"]:  # resuming needs the logs as well: they are synced, too
                sync(folder.parents[1] / name)
            with open(aside / "state.pt", "wb") as file:
                torch.save(state, file)
            files = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file())
            sums = [f"{sha256(aside / name)}  {name}\n" for name in files]
            (aside / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def _write_model(run: Path, update: int, agent, tokenizer, ranks: Ranks) -> None:
    with written_aside(run / "model", ranks) as aside:
        agent.actor_critic.export(aside, ranks.rank == 0)
        if ranks.rank == 0:
            tokenizer.save_pretrained(aside)
            (aside / MODEL_UPDATE).write_text(f"{update}\n", encoding="utf-8")
            if (run / ARGS).exists():  # the directory of a run, which a card describes
                (aside / CARD).write_text(model_card(run, update), encoding="utf-8")
