"""Checkpoints of a run: the whole state of training, and model/.

A checkpoint is a folder `update-NNNNNN` with state.pt, the files that DeepSpeed writes where it
shards the model, and SHA256SUMS (`sha256sum -c` checks it). It is written aside, synced and then
renamed, so whatever interrupts a save leaves the one before whole. state.pt is loaded with
weights_only, so nothing in it is executed. Rank 0 writes; all ranks share the directory.
Environments are not stored but played again: with equal seeds and responses they do the same.
"""

from contextlib import suppress
from pathlib import Path

import torch

from common.errors import RunError
from common.plugins import UserError
from common.ranks import Ranks
from run.card import ARGS, CARD, model_card
from run.directory import logs, say_what_is_trusted
from run.files import append_records, recover, sha256, sync, written_aside
from run.saved import (
    MODEL_UPDATE,
    NAMES,
    checkpoints,
    damaged,
    delete_old,
    is_complete,
    last_evaluation,
    model_update,
    newest,
    number_of,
    read,
    set_damaged_aside,
    turns_made,
)

KEPT = 3  # whole checkpoints; older ones are deleted
KEEPS = ("update", "logs", "envs")  # of a checkpoint, to the end of the run: the rest is large


class Checkpoints:
    """The checkpoints of one run: `restore` loads the newest, `mark` notes the state between two
    updates, `save` writes what was marked.

    state: update, sizes of the logs and places of the environments in the checkpoint that the run
        goes on from; None where it begins at 0
    """

    def __init__(self, args, run: Path, ranks: Ranks):
        self.args, self.run, self.ranks = args, run, ranks
        self.state, self.whole = None, set()
        if args.resume and ranks.rank == 0:
            say_what_is_trusted(args)
            recover(run / "checkpoints", NAMES)
            recover(run, "model")
        ranks.wait()  # all ranks find the same folders

    def finished(self) -> bool:
        """Whether a resumed run has nothing left to do; it says so."""
        if not self.args.resume or self.args.eval_only:
            return False
        done = self.ranks.first(self.ranks.rank == 0 and is_finished(self.run, self.args))
        if done:
            print(f"{self.run} is finished: {turns_said(self.args)} are made")
        return done

    def complete(self, update: int) -> bool:
        """Whether a run needs no update after `update` of them: all are made, or enough turns."""
        return is_complete(update, self.parts["episodes"].turns, self.args)

    def restore(self, tokenizer, **parts) -> int:
        """Put the newest state into `parts` (name -> object); returns how many updates made it.

        Nothing else refers to the whole state afterwards, so its memory is free again.
        ValueError: the run has lost its checkpoints, or the state does not fit
        """
        self.parts, self.tokenizer = parts, tokenizer
        if not self.args.resume:
            return 0
        state = self._load()
        if state is None:
            print(f"{self.run} has no checkpoint yet: it begins again")
            return 0
        update = restore(self.run, state, parts)
        self.state = {name: state[name] for name in KEEPS}
        if not self.args.eval_only:
            print(f"{self.run} goes on after update {update} of {self.args.num_updates}")
        return update

    def _load(self) -> dict | None:
        """Rank 0 chooses the checkpoint; all ranks load it."""
        folder = None
        if self.ranks.rank == 0:
            try:
                folder = newest(self.run)
                if folder is not None and not self.args.eval_only:
                    set_damaged_aside(self.run, folder)
            except ValueError as error:
                folder = error
        folder = self.ranks.first(folder)
        if isinstance(folder, ValueError):
            raise UserError(str(folder))
        if folder is None:
            return None
        self.whole.add(folder)
        made, wanted = number_of(folder), self.args.num_updates
        if made > wanted and not self.args.eval_only:
            raise UserError(f"--num-updates {wanted}: {self.run} has made {made} already")
        return read(folder)

    def places(self, mine: range) -> list[dict] | None:
        """Where this rank's environments `mine` were; None where no training goes on."""
        if self.state is None or self.args.eval_only:
            return None
        envs = self.state["envs"]
        if len(envs) != self.args.n_env:
            raise UserError(
                f"--n-env {self.args.n_env}: the resumed run has {len(envs)} environments"
            )
        return [envs[i] for i in mine]

    def mark(self, update: int, envs) -> None:
        """Note the state after `update` updates; nothing is written."""
        self.marked, self.envs = snapshot(self.run, update, self.parts | {"envs": envs}), envs

    def due(self, last: bool) -> bool:
        """Whether the marked state is to be saved (last: no update follows)."""
        on_time = self.marked["update"] % self.args.save_interval == 0
        return (last or on_time) and not self.args.eval_only

    def save_marked(self) -> bool:
        """Save the state that was marked, if a run saves at all; returns whether it does.

        The faults of the batch that broke off are written, too: the logger gets no turn any more.
        """
        if not self.args.eval_only:
            self.save()
        if faults := self.envs.faults:
            with suppress(RunError):  # what broke off says more than a full disk
                append_records(self.run / "faults.jsonl", self.marked["update"] + 1, faults)
        return not self.args.eval_only

    def save(self) -> None:
        """Write the state that was marked, once. Call it before any part of the state changes."""
        agent = self.parts["agent"]
        save_checkpoint(
            self.run, self.marked, agent, self.tokenizer, self.ranks, keep=KEPT, whole=self.whole
        )


def is_finished(run: Path, args) -> bool:
    """Whether the last checkpoint, model/ and the last evaluation are there."""
    last = checkpoints(run)[-1:]
    made = number_of(last[0]) if last else 0
    saved = last and made == model_update(run) and is_complete(made, turns_made(run, made), args)
    evaluated = not args.eval_interval or last_evaluation(run) == made
    return bool(saved) and evaluated and not damaged(last[0])


def turns_said(args) -> str:
    return f"all {args.num_updates} updates" + f" or {args.num_turns} turns" * bool(args.num_turns)


def snapshot(run: Path, update: int, parts: dict) -> dict:
    """The state after `update` updates. Tensors are not copied: save it before they change.

    parts: name -> object whose state_dict() holds tensors, numbers, texts and containers of them
    """
    return {name: part.state_dict() for name, part in parts.items()} | {
        "update": update,
        "random": torch.get_rng_state(),
        "logs": {path.name: path.stat().st_size for path in logs(run)},
    }


def save_checkpoint(
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
        write_state(folder, state, agent, ranks)
        whole.add(folder)
    if not written or ranks.first(model_update(run)) != state["update"]:
        with written_aside(run / "model", ranks) as aside:
            agent.actor_critic.export(aside, ranks.rank == 0)
            if ranks.rank == 0:
                tokenizer.save_pretrained(aside)
                (aside / MODEL_UPDATE).write_text(f"{state['update']}\n", encoding="utf-8")
                if (run / ARGS).exists():  # the directory of a run, which a card describes
                    (aside / CARD).write_text(model_card(run, state["update"]), encoding="utf-8")
    if ranks.rank == 0 and not written:
        delete_old(run, keep, whole)


def write_state(folder: Path, state: dict, agent, ranks: Ranks) -> None:
    with written_aside(folder, ranks) as aside:
        agent.stepper.save(aside)
        ranks.wait()
        if ranks.rank == 0:
            for name in state["logs"]:  # the checkpoint counts on the logs: they are synced, too
                sync(folder.parents[1] / name)
            with open(aside / "state.pt", "wb") as file:
                torch.save(state, file)
            files = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file())
            sums = [f"{sha256(aside / name)}  {name}\n" for name in files]
            (aside / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def restore(run: Path, state: dict, parts: dict) -> int:
    """Put a snapshot into the parts; returns how many updates made it.

    ValueError: the snapshot belongs to other parts
    """
    for name, part in parts.items():
        try:
            part.load_state_dict(state[name])
        except (RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(
                f"--resume {run}: its checkpoint is of another model or version ({name}: {reason})"
            ) from error
    torch.set_rng_state(state["random"])
    return state["update"]
