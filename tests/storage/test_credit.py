"""Rewards that came late, by hand: which turn gets them, and what GAE makes of it."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from conftest import make_prompt, make_response, make_step
from made_turns import Stub, stub_reference
from torch.testing import assert_close

from envs.credit import CreditedStep, credited
from ppo.advantages import make_estimator
from storage.batch import Batch, Scoring
from storage.collection import Collection, FixedTurns, Turn
from storage.credit import moved, with_credit

DISCOUNTS = dict(gamma_step=0.9, lam_step=0.5, gamma_token=1.0, lam_token=1.0)
ESTIMATOR = make_estimator(SimpleNamespace(advantages="dual-gae", **DISCOUNTS))


def turn(number, reward=0.0, *earlier, episode=0, prompt=(1,), **step) -> Turn:
    """earlier: pairs (number of a turn, its part of `reward`)"""
    step = make_step(number=number, reward=reward, episode=episode, **step)
    return Turn(make_response(list(prompt), [5]), credited(step, *earlier))


def rewards(*turns: Turn) -> list[float]:
    return [each.step.reward for each in moved(list(turns))]


@pytest.mark.parametrize("number, advantages", [
    # V of the prompts is .2, .4, .6, and the last turn brings .5 for itself. The other 1 is paid
    # for turn 1:  A3 = .5 - .6 = -.1,  A2 = .9 (.6) - .4 + .45 (-.1) = .095,
    #              A1 = 1 + .9 (.4) - .2 + .45 (.095) = 1.20275
    (1, [1.20275, 0.095, -0.1]),
    # turn 2:      A3 = -.1,  A2 = 1 + .14 - .045 = 1.095,  A1 = .16 + .45 (1.095) = .65275
    (2, [0.65275, 1.095, -0.1]),
    # turn 3:      A3 = .9,  A2 = .14 + .45 (.9) = .545,  A1 = .16 + .45 (.545) = .40525
    (None, [0.40525, 0.545, 0.9]),
])  # fmt: skip
def test_advantages_of_a_turn_that_is_paid_at_the_end(number, advantages):
    earlier = [] if number is None else [(number, 1.0)]
    played = [turn(1, prompt=[1, 2]), turn(2, prompt=[9, 4])]
    played.append(turn(3, 1.5, *earlier, prompt=[3, 6], terminated=True))
    rollouts = Collection(1, FixedTurns(3), Scoring(), make_batch=partial(with_credit, Batch))
    for response, step in played:
        rollouts.keep_response(0, response)
        rollouts.insert(0, step)
    rollouts.finish(0, make_prompt([7]))
    batch = rollouts.join()
    batch.score(Stub(), stub_reference, [batch.rows])
    batch.compute_returns(ESTIMATOR)
    assert_close(batch.advantages.flatten(), torch.tensor(advantages))
    [episode] = rollouts.episodes.finished
    assert episode.ret == pytest.approx(1.5)  # a reward moves within the episode


def test_rewards_move_within_their_episode():
    # turn 2 of episode 3 pays turn 1 of the same episode, and not turn 1 of the one before
    before = [turn(1), turn(2, 0.5, terminated=True)]
    after = [turn(1, 0.25, episode=3), turn(2, 3.0, (1, 2.0), (1, 0.5), episode=3), turn(1)]
    assert rewards(*before, *after) == [0.0, 0.5, 2.75, 0.5, 0.0]


def test_an_earlier_batch_is_paid_through_the_first_turn_of_this_one():
    # the batch begins with turn 4: turns 1 and 2 are trained, and turn 5 is here
    assert rewards(turn(4), turn(5), turn(6, 7.0, (1, 4.0), (2, 2.0), (5, 1.0))) == [6.0, 1.0, 0.0]


def test_an_untrained_call_is_paid_through_the_turn_before_it():
    # calls 2, 3 and 5 were untrained; call 1 of the next episode, too
    turns = [turn(1), turn(4), turn(6, 3.0, (3, 1.0), (5, 2.0), terminated=True)]
    assert rewards(*turns) == [1.0, 2.0, 0.0]
    assert rewards(*turns, turn(2, 4.0, (1, 4.0), episode=1)) == [1.0, 2.0, 0.0, 4.0]


def test_turns_without_such_rewards_stay_as_they_are():
    turns = [turn(1, 0.5), turn(2, -0.1, truncated=True)]
    assert all(new.step is old.step for new, old in zip(moved(turns), turns, strict=True))
    assert not isinstance(turns[0].step, CreditedStep)
