"""Rewards for earlier turns: a program may pay a response that it had some turns ago.

A Step is complete, and may be kept in a batch, long before such a reward comes. So the reward comes
with the Step of a later turn, and says to which turn it belongs; `storage.credit` moves it there
when the batch is complete. Replays and interrupted runs repeat it with the same Step.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from envs.text_env import Step


@dataclass(frozen=True)
class CreditedStep(Step):
    """A Step whose reward is partly that of earlier turns.

    earlier: pairs of a number of a turn, as `Step.number`, and the part of `reward` that it earned
    """

    earlier: tuple[tuple[int, float], ...] = ()


def earlier_rewards(payments: Iterable, turn: int) -> tuple[tuple[int, float], ...]:
    """Return the payments (amount, number of a turn or None) that belong to turns before `turn`."""
    return tuple((number, amount) for amount, number in payments if number and number < turn)


def credited(step: Step, *earlier: tuple[int, float]) -> Step:
    """Return a Step whose reward includes these rewards of earlier turns, beside those it has."""
    earlier = (*getattr(step, "earlier", ()), *earlier)
    return CreditedStep(**vars(step) | {"earlier": earlier}) if earlier else step
