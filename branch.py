"""Plays episodes on from given states, exactly: `turnwise critic` and `--advantages vine` do.

An environment replays an episode up to a turn, a memory gets the same observations, and from there
`main.collect` plays on: with the policy, prompts and limits of the run.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

from common.plugins import UserError
from envs.pool.make import make_envs
from memory import make_memories
from ppo.continuations import KeptEpisodes, Start
from ppo.vine import ValuedCollection
from storage.collection import Turn


class Branches:
    """Episodes that are played on, as many at a time as the engine has slots.

    collect: main.collect; pool: makes a context of environments, which closes them
    costs: turns and tokens that were played; the caller may clear it
    faults: failures of environments, in the form of a pool
    """

    def __init__(self, args, n_env: int, engine, render, collect: Callable, pool=closing):
        self.args, self.n_env, self.pool = args, n_env, pool
        self.engine, self.render, self.collect = engine, render, collect
        self.costs, self.faults = Counter(), []

    def play(self, starts: list[Start]) -> Iterator[list[Turn] | None]:
        """Yield the turns of each episode from its start on; None if a fault cut it.

        UserError: a replay led elsewhere
        """
        full = len(starts) // self.n_env * self.n_env
        for part in filter(None, (starts[:full], starts[full:])):
            for turns in self._play_part(part, min(len(part), self.n_env)):
                self.costs["turns"] += len(turns)
                self.costs["prompt_tokens"] += sum(len(t.response.prompt.ids) for t in turns)
                self.costs["response_tokens"] += sum(len(t.response.ids) for t in turns)
                yield None if any(turn.step.fault for turn in turns) else turns

    def _play_part(self, starts: list[Start], size: int) -> Iterator[list[Turn]]:
        """Play a multiple of `size` episodes, so many at a time, with the same environments."""
        environment, generation = self.args.environment, self.args.generation
        nothing = [[] for _ in range(size)]
        with self.pool(make_envs(environment, generation, nothing, proven=True)) as envs:
            for begin in range(0, len(starts), size):
                yield from self._play_together(envs, starts[begin : begin + size])
                self.faults += envs.faults
                envs.faults.clear()

    def _play_together(self, envs, starts: list[Start]) -> list[list[Turn]]:
        played, environment = KeptEpisodes(starts), self.args.environment
        pasts = envs.go_to([[start.seed] for start in starts], [start.state for start in starts])
        for start, (shown, steps) in zip(starts, pasts, strict=True):
            if shown is None or len(steps) != start.t:
                name = f"{environment.env_name}: the episode of seed {start.seed}"
                raise UserError(f"{name} cannot be replayed")
        memories = make_memories(environment, pasts)
        self.collect(envs, memories, self.engine, self.render, played, self.args.seed)
        return played.kept


def with_values(args, run, rollouts, envs, engine, render, collect: Callable):
    """Return the storage as `collect` uses it: with --advantages vine, it values its states.

    UserError: the environment cannot be replayed
    """
    if not args.update.continuations:
        return rollouts
    if not all(envs.observation(n).replayable for n in range(envs.n_env)):
        line = f"--advantages {args.advantages} replays episodes, and {args.env_name} says that"
        raise UserError(f"{line} equal responses do not lead to equal states there")
    branches = Branches(args, envs.n_env, engine, render, collect, run.pool)
    return ValuedCollection(
        rollouts, envs, branches, args.update.continuations, args.gamma_step, args.group_size
    )
