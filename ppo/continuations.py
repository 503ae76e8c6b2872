"""Episodes that are played on from given states: what a state is worth is what they earn.

The states are turns of episodes that were played before. Equal seeds and responses lead to equal
states, so an environment replays an episode up to a turn, and from there the policy plays on with
noise of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ppo.evaluation import EvaluationEpisodes, UntilNoneIsLeft
from storage.collection import Turn, all_ids


class Start(NamedTuple):
    """Where an episode is played from.

    state: the responses that are replayed, as `envs.pool.resilient` resumes them; {}: none
    previous_ids: the ids of the prompt and the response before, which the next prompt may continue
    member: those of one seed that differ in it have noise of their own; 0 is an evaluation's
    """

    seed: int
    state: dict
    previous_ids: Sequence[int] = ()
    member: int = 0

    @property
    def t(self) -> int:
        """How many turns are replayed."""
        return len(self.state.get("responses", ()))

    def after(self, turn: Turn) -> "Start":
        """Return where the episode goes on after a turn."""
        state = dict(
            responses=[*self.state.get("responses", ()), turn.step.response],
            truncated=[*self.state.get("truncated", ()), turn.response.truncated],
        )
        return self._replace(state=state, previous_ids=all_ids(turn.response))


@dataclass(frozen=True)
class OwnNoise(UntilNoneIsLeft):
    """The schedule of an evaluation whose environments differ in their sampling noise."""

    members: list[int]

    def group_member(self, n: int) -> int:
        return self.members[n]


class KeptEpisodes(EvaluationEpisodes):
    """One episode of each environment, all turns of which are kept."""

    def __init__(self, starts: list[Start]):
        super().__init__(len(starts))
        self.schedule = OwnNoise([start.member for start in starts])
        self.episodes.previous_ids = [[*start.previous_ids] for start in starts]
        self.kept = [[] for _ in starts]

    def insert(self, n: int, step) -> None:
        """Keep what environment n answered."""
        self.kept[n].append(Turn(self.responses[n], step))
        super().insert(n, step)


def returns_to_go(turns: list[Turn], gamma: float) -> list[float]:
    """Return sum_k gamma^k r_{t+k} of each turn t of an episode."""
    returns, ahead = [], 0.0
    for turn in reversed(turns):
        ahead = turn.step.reward + gamma * ahead
        returns.append(ahead)
    return returns[::-1]
