"""Episodes that are played on from given states: what a state is worth is what they earn.

The states are turns of episodes that were played before. Equal seeds and responses lead to equal
states, so an environment replays an episode up to a turn, and from there the policy plays on with
noise of its own.
"""

from dataclasses import dataclass

from ppo.evaluation import EvaluationEpisodes, UntilNoneIsLeft
from storage.collection import Turn


class KeptEpisodes(EvaluationEpisodes):
    """Evaluation episodes that keep all turns: `played` has (environment, Response, Step)."""

    def __init__(self, n_env: int, first_member: int = 0):
        super().__init__(n_env, transcript=self)
        self.schedule = OwnNoise(first_member)

    def add(self, n: int, response, step) -> None:
        """Ignore what a transcript would write."""

    def by(self, key) -> dict:
        """Return key(n, step) -> the Turns in the order of play."""
        turns = {}
        for n, response, step in self.played:
            turns.setdefault(key(n, step), []).append(Turn(response, step))
        return turns


@dataclass(frozen=True)
class OwnNoise(UntilNoneIsLeft):
    """The schedule of an evaluation whose environments differ in their sampling noise.

    first: the number of environment 0 among all that play; 0 and one environment for each episode
        is the noise of an evaluation
    """

    first: int = 0

    def group_member(self, n: int) -> int:
        return self.first + n if self.first else 0


def returns_to_go(turns: list[Turn], gamma: float) -> list[float]:
    """Return sum_k gamma^k r_{t+k} of each turn t of an episode."""
    returns, ahead = [], 0.0
    for turn in reversed(turns):
        ahead = turn.step.reward + gamma * ahead
        returns.append(ahead)
    return returns[::-1]
