"""Collection: environments at their own pace, until each has its turns."""

import pytest
from conftest import make_collection, make_prompt, make_step
from made_turns import answer, play, scored, two_by_two

from common.ranks import Ranks
from storage.collection import Turn
from storage.schedules import at_time_limits


def test_each_environment_has_its_own_pace():
    rollouts = make_collection(2, 2)
    play(rollouts, 1, answer([1], [2]), reward=1.0)
    play(rollouts, 1, answer([1], [3]), reward=2.0)
    assert not rollouts.wants(1) and rollouts.wants(0)
    rollouts.finish(1, make_prompt([4]))
    assert not rollouts.full
    play(rollouts, 0, answer([1], [5]), reward=3.0)
    assert rollouts.wants(0)
    play(rollouts, 0, answer([1], [6]), reward=4.0)
    assert not rollouts.full  # the prompt that its last value is read at is still to come
    rollouts.finish(0, make_prompt([7]))
    assert rollouts.full
    batch = rollouts.join()
    assert [[list(r.ids) for r in turn] for turn in batch.responses] == [[[5], [2]], [[6], [3]]]
    assert [[s.reward for s in turn] for turn in batch.steps] == [[3.0, 1.0], [4.0, 2.0]]


def test_a_turn_too_many_is_refused():
    rollouts = two_by_two()
    with pytest.raises(AssertionError, match="environment 0 already has its 2 turns"):
        rollouts.insert(0, make_step())


def test_a_batch_that_is_not_complete_is_not_scored():
    rollouts = make_collection(2, 1)
    play(rollouts, 0, answer([1], [2]))
    with pytest.raises(AssertionError, match=r"turns per environment \[1\], not 2"):
        rollouts.join()


class SecondOfTwo(Ranks):
    """Rank 1 of two ranks. first: what rank 0 hands in, gather by gather"""

    rank, size = 1, 2

    def __init__(self, first):
        self.first_rank = iter(first)

    def gather(self, items):
        return [*next(self.first_rank), *items]


def test_prompts_at_time_limits_have_the_environments_number_over_all_ranks():
    theirs = Turn(answer([1], [2]), make_step(truncated=True))
    first = [[((0, 0), make_prompt([8]))], [[theirs]], [make_prompt([3])]]
    rollouts = make_collection(1, 2, needs_bootstrap=at_time_limits, ranks=SecondOfTwo(first))
    play(rollouts, 0, answer([4], [5]), truncated=True, limit=[9])
    rollouts.finish(0, make_prompt([6]))
    # this rank's environment 0 is number 1 of both
    final = rollouts.join().final_prompts
    assert {at: list(prompt.ids) for at, prompt in final.items()} == {(0, 0): [8], (0, 1): [9]}


def test_after_update_forgets_the_batch_but_not_the_episodes():
    rollouts = two_by_two()
    rollouts.after_update(scored(rollouts))
    assert not rollouts.full and rollouts.wants(0) and not rollouts.final_prompts
    assert rollouts.episodes.turns == 4
    assert len(rollouts.episodes.finished) == 2
    assert rollouts.episodes.running[1].ret == 0.25  # the episode under way
