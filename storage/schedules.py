"""Batches of whole episodes, in groups that begin together, and other rules of bootstrapping.

Estimators that compare episodes (RLOO, GRPO, GiGPO) need all turns of an episode in one batch, and
several episodes that began from the same seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.collection import Turn


@dataclass(frozen=True)
class WholeEpisodes:
    """Whole episodes, at least e_len turns for each environment on average over its group.

    group_size: environments that play the same episodes; neighbours make a group
    """

    e_len: int
    group_size: int

    def wants(self, n: int, turns: list[list[Turn]]) -> bool:
        """Whether environment n takes another turn: its episode is under way, or its group has too
        few turns."""
        group = self._group(n)
        # A return needs the whole episode, and a comparison needs all episodes of the group.
        under_way = bool(turns[n]) and not turns[n][-1].step.done
        return under_way or sum(len(turns[m]) for m in group) < len(group) * self.e_len

    def ready_to_ask(self, n: int, turns: list[list[Turn]]) -> Sequence[int]:
        """The environments to ask once n has completed a turn: n alone or, if that ended its
        episode, the whole group as soon as all of them have ended theirs."""
        if not turns[n][-1].step.done:
            return [n]
        # If the quick ones went on alone, they would play episodes that the others never begin.
        group = self._group(n)
        ended = {sum(turn.step.done for turn in turns[m]) for m in group}
        return group if len(ended) == 1 else []

    def group_member(self, n: int) -> int:
        return n - self._group(n)[0]

    def _group(self, n: int) -> range:
        first = n // self.group_size * self.group_size
        return range(first, first + self.group_size)


def at_time_limits(step) -> bool:
    """Bootstrap from V wherever an episode was cut off before it had an outcome."""
    # Both may be true in a last turn. Then the outcome is known, and V would only add its error.
    return step.truncated and not step.terminated


def never(step) -> bool:
    return False
