"""Values by continuations (--advantages vine): a state is worth what the policy earns from it.

When the turns of a batch are complete, K continuations are played from the state before each turn,
and from the state in which the batch cuts an episode. Their mean discounted return is V of the
state. They are turns like any other in `turns`, `--num-turns` and the times of a run, but nothing
is trained on them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from common.plugins import UserError
from common.wrapper import Wrapper
from ppo.continuations import Start, returns_to_go
from storage.collection import Turn


@dataclass
class State:
    """A state of an environment that gets a value.

    start: from where it is played on; prompt: the ids that the policy saw or will see there
    returns: those of its continuations
    """

    start: Start
    prompt: Sequence[int]
    returns: list[float] = field(default_factory=list)


class ValuedCollection(Wrapper):
    """A `Collection` whose batch knows the value of every state.

    envs: the pool that it collects from
    branches: plays episodes on, as branch.Branches does
    count: K; gamma: the discount from turn to turn; group_size: as in the flags
    """

    def __init__(self, collection, envs, branches, count: int, gamma: float, group_size: int):
        super().__init__(collection)
        self.envs, self.branches, self.count, self.gamma = envs, branches, count, gamma
        self.members = max(1, group_size)
        self.begun: dict[int, Start] = {}  # environment -> where this batch begins there
        self.played = 0.0  # share of the continuations

    def progress(self) -> float:
        """Return how far the batch is: half of it are the continuations."""
        return (self.inner.progress() + self.played) / 2

    def keep_response(self, n: int, response) -> None:
        """Keep the response that environment n is about to act on."""
        if not self.inner.turns[n]:  # an episode may have begun in an earlier batch
            seed, past = self.envs.position(n)[0], self.envs.past(n)
            self.begun[n] = Start(seed, past, self.inner.previous_ids(n))
        self.inner.keep_response(n, response)

    def join(self):
        """Bring the turns and the values of all ranks together, and count what they cost.

        UserError: a state shows another prompt when it is reached again
        """
        ranks, branches = self.inner.ranks, self.branches
        states = [self._states(n) for n in range(len(self.inner.turns))]
        self._play([(state, member) for n, each in enumerate(states) for state in each
                    for member in self._members(n, state.start.t)])  # fmt: skip
        values = [sampled_values(turns, each, self.gamma)
                  for turns, each in zip(self.inner.turns, states, strict=True)]  # fmt: skip
        costs = sum(map(Counter, ranks.gather([branches.costs])), Counter())
        self.envs.faults.extend(branches.envs.faults)
        branches.envs.faults.clear()
        values = ranks.gather(values)
        batch = self.inner.join()
        batch.take_values(values, {f"rollout/continued_{name}": n for name, n in costs.items()})
        batch.episodes.turns += costs["turns"]  # they use up --num-turns, too
        branches.costs = Counter()
        self.begun, self.played = {}, 0.0
        return batch

    def _states(self, n: int) -> list[State]:
        """Return the state before each turn of environment n, and the one in which the batch cuts
        an episode."""
        turns, at, states = self.inner.turns[n], self.begun[n], []
        for turn in turns:
            if turn.step.number == 1:
                at = Start(turn.step.seed, {}, at.previous_ids)
            states.append(State(at, turn.response.prompt.ids))
            at = at.after(turn)
        if not turns[-1].step.done:
            states.append(State(at, self.inner.next_prompts[n].ids))
        return states

    def _members(self, n: int, t: int) -> range:
        """Return the numbers of the continuations of turn t of environment n.

        No other continuation of an episode of this seed has them, and no member of its group.
        """
        first = t * self.members + self.inner.group_member(n)
        return range(self.members + first * self.count, self.members + (first + 1) * self.count)

    def _play(self, branches: list[tuple[State, int]]) -> None:
        """Play the continuations, and keep their returns with their states."""
        starts = [state.start._replace(member=member) for state, member in branches]
        episodes = self.branches.play(starts)
        for k, ((state, _), turns) in enumerate(zip(branches, episodes, strict=True)):
            self.played = (k + 1) / len(branches)
            if turns is None:
                continue
            if [*turns[0].response.prompt.ids] != [*state.prompt]:
                raise UserError(
                    f"--advantages vine: the episode of seed {state.start.seed}, played again, "
                    f"shows another prompt at turn {state.start.t + 1}: the environment and the "
                    "memory must repeat exactly"
                )
            state.returns.append(returns_to_go(turns, self.gamma)[0])


def sampled_values(
    turns: list[Turn], states: list[State], gamma: float
) -> list[tuple[float, float]]:
    """Return V of the state before and after each turn of an environment.

    An episode's end is worth 0, at a time limit, too. If a fault ended it, or if faults cut all
    continuations of a state, no better number is known for what follows than V before. A state
    whose own continuations were all cut is worth what its turn earned: the advantage is 0.
    """
    known = [fmean(state.returns) if state.returns else None for state in states]
    ahead = known[len(turns)] if len(states) > len(turns) else None  # None: not known
    pairs = []
    for turn, value in reversed([*zip(turns, known, strict=False)]):
        if turn.step.done:  # what was ahead is another episode
            ahead = None if turn.step.fault else 0.0
        if value is not None:
            pairs.append((value, value if ahead is None else ahead))
            ahead = value
        else:
            pairs.append((turn.step.reward + gamma * (ahead or 0.0), ahead or 0.0))
            ahead = pairs[-1][0] if ahead is not None else None
    return pairs[::-1]
