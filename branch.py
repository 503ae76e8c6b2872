"""Plays episodes on from given states, exactly: `turnwise critic` and `--advantages vine` do.

An environment replays an episode up to a turn, a memory gets the same observations, and from there
`main.collect` plays on: with the policy, prompts and limits of the run.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from common.plugins import UserError
from common.wrapper import Wrapper
from envs.pool.make import make_envs
from memory import make_memories
from ppo.continuations import KeptEpisodes, Start
from ppo.vine import ValuedCollection
from storage.collection import Turn


class Branches:
    """Episodes that are played on, as many at a time as there are environments.

    envs: a pool of their own, of `places`
    collect: main.collect
    costs: turns and tokens that were played; the caller may clear it
    """

    def __init__(self, args, envs, engine, render, collect: Callable):
        self.args, self.envs = args, envs
        self.engine, self.render, self.collect = engine, render, collect
        self.costs = Counter()

    def play(self, starts: list[Start]) -> Iterator[list[Turn] | None]:
        """Yield the turns of each episode from its start on; None if a fault cut it.

        UserError: a replay led elsewhere
        """
        for begin in range(0, len(starts), self.envs.n_env):
            for turns in self._play_together(starts[begin : begin + self.envs.n_env]):
                self.costs["turns"] += len(turns)
                self.costs["prompt_tokens"] += sum(len(t.response.prompt.ids) for t in turns)
                self.costs["response_tokens"] += sum(len(t.response.ids) for t in turns)
                yield None if any(turn.step.fault for turn in turns) else turns

    def _play_together(self, starts: list[Start]) -> list[list[Turn]]:
        played, environment = KeptEpisodes(starts), self.args.environment
        states = [([start.seed], start.state) for start in starts]
        idle = self.envs.n_env - len(starts)
        pasts = self.envs.go_to(states + [([], {})] * idle)[: len(starts)]
        for start, (shown, steps) in zip(starts, pasts, strict=True):
            if shown is None or len(steps) != start.t:
                name = f"{environment.env_name}: the episode of seed {start.seed}"
                raise UserError(f"{name} cannot be replayed")
        envs, memories = Busy(self.envs, len(starts)), make_memories(environment, pasts)
        self.collect(envs, memories, self.engine, self.render, played, self.args.seed)
        return played.kept


class Busy(Wrapper):
    """The first `n_env` environments of a pool, the others of which have no episode to play."""

    def __init__(self, envs, n_env: int):
        super().__init__(envs)
        self.n_env = n_env


def places(args, n_env: int):
    """Make a pool whose environments have no episode yet."""
    seeds = [[] for _ in range(n_env)]
    return make_envs(args.environment, args.generation, seeds, proven=True)


def with_values(args, run, rollouts, envs, engine, render, collect: Callable):
    """Return the storage as `collect` uses it: with --advantages vine, it values its states.

    UserError: the environment cannot be replayed
    """
    if args.eval_only or not args.update.continuations:
        return rollouts
    if not all(envs.observation(n).replayable for n in range(envs.n_env)):
        line = f"--advantages {args.advantages} replays episodes, and {args.env_name} says that"
        raise UserError(f"{line} equal responses do not lead to equal states there")
    own = run.keep(run.pool(places(args, envs.n_env)))
    branches = Branches(args, own, engine, render, collect)
    return ValuedCollection(
        rollouts, envs, branches, args.update.continuations, args.gamma_step, args.group_size
    )
