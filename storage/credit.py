"""Moves rewards that came late to the turns of the batch that earned them.

Agent programs may pay an earlier response (`envs.credit`): its reward comes with a later Step. When
a batch is complete, such a reward moves to the turn that gave the response. A turn that an earlier
batch had is trained already. Then the first turn of the episode in this batch gets the reward: V of
this turn learns to expect it, and V is what the earlier batch was bootstrapped from.
"""

from collections.abc import Callable
from dataclasses import replace

from storage.collection import Turn


def with_credit(make_batch: Callable, turns: list[list[Turn]], *others):
    """Make a batch of turns that have the rewards they earned. others: as for `make_batch`"""
    return make_batch([moved(each) for each in turns], *others)


def moved(turns: list[Turn]) -> list[Turn]:
    """Return the turns of one environment, in their order, with rewards moved to earlier ones."""
    rewards = [turn.step.reward for turn in turns]
    for k, (_, step) in enumerate(turns):
        for number, amount in getattr(step, "earlier", ()):
            rewards[k] -= amount
            rewards[_earner(turns[: k + 1], number)] += amount
    return [
        Turn(response, replace(step, reward=reward) if reward != step.reward else step)
        for (response, step), reward in zip(turns, rewards, strict=True)
    ]


def _earner(turns: list[Turn], number: int) -> int:
    """Return the index of the turn that gets a reward of turn `number` of the last one's episode.

    An untrained call is no turn: what it earned belongs to the turn before it.
    """
    episode = turns[-1].step.episode
    own = [k for k, turn in enumerate(turns) if turn.step.episode == episode]
    return max((k for k in own if turns[k].step.number <= number), default=own[0])
