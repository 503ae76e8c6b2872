"""The checkpoints of a run: which one it continues from, when it saves, and what it saves.

`run.snapshot` writes and loads one of them, `run.saved` finds those that are there.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from common.engine_flag import parted
from common.errors import RunError
from common.estimator import key_of
from common.plugins import UserError
from run.describe import restore_args
from run.files import append_records, recover, remove_unfinished
from run.saved import (
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
from run.snapshot import load_snapshot, save_snapshot, take_snapshot

KEPT = 3  # whole checkpoints; older ones are deleted


@dataclass(frozen=True)
class Origin:
    """What a run continues from: a checkpoint, or nothing.

    update: how many updates were made; logs: name -> length of each log at the checkpoint
    envs: the states of all environments
    """

    resumed: bool = False
    update: int = 0
    logs: dict[str, int] = field(default_factory=dict)
    envs: list[dict] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of one run: `restore` loads the newest, `mark` notes the state between two
    updates, and `save` writes the state that was marked.

    origin: the checkpoint that the run continues from, after `restore`
    marked: the newest snapshot; None before the first update
    """

    def __init__(self, args, directory: Path, ranks):
        self.args, self.directory, self.ranks = args, directory, ranks
        self.origin, self.marked, self.whole = Origin(), None, set()
        if args.resume and ranks.rank == 0:
            say_what_is_trusted(args)
            recover(directory / "checkpoints", NAMES)
            recover(directory, "model")
            remove_unfinished(directory)
            remove_unfinished(directory / "model")
            restore_args(directory)
            if not args.eval_only:  # a kill may have come before the last of them were deleted
                delete_old(directory, KEPT, self.whole)
        ranks.wait()  # all ranks find the same folders

    def finished(self) -> bool:
        """Return whether a resumed run has nothing left to do; if so, print it."""
        if not self.args.resume or self.args.eval_only:
            return False
        finished = self.ranks.rank == 0 and is_finished(self.directory, self.args)
        if finished := self.ranks.first(finished):
            print(f"{self.directory} is finished: {length(self.args)} are made")
        return finished

    def complete(self, update: int) -> bool:
        """Return whether a run needs no update after `update` of them: all updates or enough turns
        are made."""
        return is_complete(update, self.parts["episodes"].turns, self.args)

    def restore(self, **parts) -> int:
        """Load the newest checkpoint into `parts` (name -> object).

        Returns how many updates made it. Nothing else refers to the whole state afterwards, so its
        memory is free again.
        UserError: the run has lost its checkpoints, or the state does not fit the parts
        """
        self.parts = parts
        if not self.args.resume:
            return 0
        state = self._load()
        if state is None:
            print(f"{self.directory} has no checkpoint yet: it begins again")
            return 0
        load_snapshot(self.directory, state, parts)
        self.origin = Origin(True, state["update"], state["logs"], state["envs"])
        if not self.args.eval_only:
            total = self.args.num_updates
            print(f"{self.directory} goes on after update {self.origin.update} of {total}")
        return self.origin.update

    def _load(self) -> dict | None:
        """Rank 0 chooses the checkpoint, and all ranks load it."""
        folder = None
        if self.ranks.rank == 0:
            try:
                folder = newest(self.directory)
                if folder is not None and not self.args.eval_only:
                    set_damaged_aside(self.directory, folder)
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
            raise UserError(f"--num-updates {wanted}: {self.directory} has made {made} already")
        return read(folder)

    def env_states(self) -> list[dict] | None:
        """Return the states of this rank's environments; None: they begin anew."""
        if not self.origin.resumed or self.args.eval_only:
            return None
        states, n_env = self.origin.envs, self.args.n_env
        if len(states) != n_env:
            raise UserError(f"--n-env {n_env}: the resumed run has {len(states)} environments")
        return [states[i] for i in self.ranks.share(n_env)]

    def mark(self, update: int, envs) -> None:
        """Note the state after `update` updates; nothing is written."""
        parts = self.parts | {"envs": envs}
        self.marked, self.envs = take_snapshot(self.directory, update, parts), envs

    def due(self) -> bool:
        """Return whether the marked state is to be saved now: at its interval, or as the last."""
        update = self.marked["update"]
        on_time = self.complete(update) or update % self.args.save_interval == 0
        return on_time and not self.args.eval_only

    def save(self, tokenizer) -> None:
        """Write the marked state, once. Call it before any part of the state changes."""
        agent = self.parts["agent"]
        save_snapshot(
            self.directory, self.marked, agent, tokenizer, self.ranks, keep=KEPT, whole=self.whole
        )

    def save_faults(self) -> None:
        """Write the faults of a batch that broke off, for it will not be logged."""
        if self.envs.faults:
            with suppress(RunError):  # what broke off says more than a full disk
                log = self.directory / "faults.jsonl"
                append_records(log, self.marked["update"] + 1, self.envs.faults)


def is_finished(run: Path, args) -> bool:
    """Return whether the last checkpoint, model/ and the last evaluation are there."""
    last = checkpoints(run)[-1:]
    made = number_of(last[0]) if last else 0
    saved = last and made == model_update(run) and is_complete(made, turns_made(run, made), args)
    evaluated = not args.eval_interval or last_evaluation(run) == made
    return bool(saved) and evaluated and not damaged(last[0])


def length(args) -> str:
    """Return how long the run was to be, in words."""
    turns = f" or {args.num_turns} turns" if args.num_turns else ""
    return f"all {args.num_updates} updates{turns}"


def say_what_is_trusted(args) -> None:
    """Print which code of others a resumed run is about to execute."""
    names = [args.env_name, args.memory, parted(args.engine)[0], key_of(args.advantages)]
    own = [f"it imports {name}" for name in names if ":" in name]
    pickles = ["DeepSpeed unpickles its checkpoint"] if args.zero_stage else []
    if own or pickles:
        print(f"{args.resume}: {', '.join(own + pickles)}; go on only if you trust these files")
