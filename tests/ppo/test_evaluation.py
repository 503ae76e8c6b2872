"""The evaluation episodes: their intervals by hand, their bookkeeping, their seeds."""

from array import array
from functools import partial

import pytest
from conftest import make_prompt, make_response, make_step
from small_envs import Dice, Picky

from envs import make_env
from envs.games.toy import Toy
from envs.pool import faults
from envs.pool.evaluation import all_evaluation_seeds, evaluation_seeds
from envs.pool.resilient import ResilientPool
from envs.pool.serial import training_seeds
from envs.text_env import Observation
from main import collect
from memory.window import WindowMemory
from ppo.evaluation import EvaluationEpisodes, wilson_interval


@pytest.mark.parametrize(
    ("wins", "count", "low", "high"),
    [
        # z^2 = 3.841459. 8 of 10: centre .8 + .192073, half 1.959964 (.016 + .009604)^.5 = .313617,
        # over 1.384146: .992073 -+ .313617 -> .4902, .9433
        (8, 10, 0.4902, 0.9433),
        # 0 of 10: the bounds are 0 and z^2 / (10 + z^2) = 3.841459 / 13.841459
        (0, 10, 0.0, 0.27753),
        # all of 10: the mirror image
        (10, 10, 0.72247, 1.0),
        # 128 of 256: .5 -+ 1.959964 (.25 / 256 + .000014654)^.5 / 1.015006 = .5 -+ .060794
        (128, 256, 0.43921, 0.56079),
    ],
)
def test_wilson_interval(wins, count, low, high):
    assert wilson_interval(wins, count) == pytest.approx((low, high), abs=5e-5)


OTHER = Observation("of the next episode", "", "", "")


def test_an_evaluation_is_full_when_no_environment_has_another_episode():
    evaluation = EvaluationEpisodes(n_env=2)
    evaluation.insert(1, make_step())  # a turn that ends nothing
    evaluation.insert(1, make_step(terminated=True))
    assert evaluation.wants(1)
    evaluation.insert(1, make_step(terminated=True, first=None))
    assert not evaluation.wants(1) and evaluation.wants(0)
    evaluation.finish(1, make_prompt([1]))
    assert not evaluation.full
    for first in (OTHER, OTHER, None):
        evaluation.insert(0, make_step(truncated=True, first=first))
    assert not evaluation.wants(0)
    evaluation.finish(0, make_prompt([1]))
    assert evaluation.full
    assert len(evaluation.episodes.finished) == 5


def test_an_evaluation_keeps_numbers_in_arrays():
    evaluation = EvaluationEpisodes(n_env=1, transcript=object())
    evaluation.keep_response(0, make_response([1, 2], [3, 4], [-0.5, -0.25], ["a", "b"]))
    evaluation.insert(0, make_step())
    [(_, response, _)] = evaluation.played
    assert [type(numbers) for numbers in (response.ids, response.logps, response.prompt.ids)] == [
        array
    ] * 3
    assert list(response.ids) == [3, 4] and evaluation.previous_ids(0) == [1, 2, 3, 4]


def test_the_next_free_environment_plays_the_next_episode():
    envs = ResilientPool(Dice, evaluation_seeds(5, 2, range(2)))
    assert [first.text.split()[1] for first in envs.reset()] == ["1", "3"]
    ended = []
    for _ in range(3):  # environment 0 ends its episodes, 1 is slow with its first one
        envs.send(0, "end")
        ended += envs.poll()
    assert [step.first and step.first.text.split()[1] for _, step in ended] == ["5", "7", "9"]
    assert envs.position(0) == (9, 0) and envs.position(1) == (3, 0)
    for i in (0, 1):
        envs.send(i, "end")
    assert [step.first for _, step in envs.poll()] == [None, None]


def test_the_summary_by_hand():
    evaluation = EvaluationEpisodes(n_env=1)
    # returns 1, 0, 1, .8 (two turns, the first invalid); successes 1, 0, 1, 1
    evaluation.insert(0, make_step(reward=1.0, terminated=True, success=True))
    evaluation.insert(0, make_step(reward=0.0, truncated=True))
    evaluation.insert(0, make_step(reward=1.0, terminated=True, success=True))
    evaluation.insert(0, make_step(reward=-0.2, valid=False))
    evaluation.insert(0, make_step(reward=1.0, terminated=True, success=True))
    summary = evaluation.summary()
    assert summary["eval/episodes"] == 4
    assert summary["eval/success"] == 0.75
    assert summary["eval/return"] == pytest.approx(0.7)
    # squares of .3, -.7, .3, .1: .68; / 3 (sample variance) / 4, root
    assert summary["eval/return_stderr"] == pytest.approx((0.68 / 3 / 4) ** 0.5)
    assert summary["eval/episode_len"] == 1.25
    assert summary["eval/valid_action"] == 0.8
    low, high = wilson_interval(3, 4)
    assert (summary["eval/success_low"], summary["eval/success_high"]) == (low, high)


class SeedShown(Toy):
    """A toy that tells which seed each of its episodes has."""

    played: list[int] = []

    def reset(self, *, seed=None, options=None):
        self.played.append(seed)
        return super().reset(seed=seed, options=options)


class OneWord:
    """An engine that always answers with the same word, in lock-step."""

    def __init__(self, text="ACTION: red"):
        self.text, self.queue = text, []

    @property
    def idle(self):
        return not self.queue

    def submit(self, slot, prompt, seed):
        self.queue.append((slot, prompt))

    def step(self):
        queue, self.queue = self.queue, []
        return [(i, make_response(p.ids, [1], pieces=[self.text])) for i, p in queue]


def play_evaluation(make, episodes: int, n_env: int) -> EvaluationEpisodes:
    envs = ResilientPool(make, evaluation_seeds(episodes, n_env, range(n_env)))
    memories = [WindowMemory(0) for _ in range(n_env)]
    for memory, first in zip(memories, envs.reset(), strict=True):
        memory.reset(first)
    evaluation = EvaluationEpisodes(n_env, all_seeds=all_evaluation_seeds(episodes))

    def render(messages, before):
        return make_prompt([1])

    collect(envs, memories, OneWord(), render, evaluation, 0)
    return evaluation


@pytest.mark.parametrize("n_env", [1, 2, 3, 5])
def test_each_evaluation_episode_is_played_once(n_env, monkeypatch):
    monkeypatch.setattr(SeedShown, "played", [])
    evaluation = play_evaluation(SeedShown, 5, n_env)
    assert sorted(SeedShown.played) == [1, 3, 5, 7, 9]  # seed 2 k + 1 of episode k
    assert evaluation.summary()["eval/episodes"] == 5


@pytest.mark.parametrize("bad", [5, 9])
def test_an_episode_that_cannot_begin_counts_as_a_failure(bad, monkeypatch):
    monkeypatch.setattr(faults, "PAUSE_SECONDS", 0.0)  # it is tried again and again
    whole = play_evaluation(partial(Picky, 0), 5, n_env=2).by_episode()
    evaluation = play_evaluation(partial(Picky, bad), 5, n_env=2)
    summary, outcomes = evaluation.summary(), evaluation.by_episode()
    assert summary["eval/episodes"] == len(outcomes["success"]) == 5
    # episode k has seed 2 k + 1; the others are what they are without the failure
    for name in ("success", "return"):
        whole[name][(bad - 1) // 2] = 0
        assert outcomes[name] == whole[name]
    assert summary["eval/return"] == pytest.approx(sum(whole["return"]) / 5)


def test_the_evaluation_does_not_depend_on_the_number_of_environments():
    make = partial(make_env, "toy")
    returns = [
        sorted(e.ret for e in play_evaluation(make, 12, n).episodes.finished) for n in (1, 4, 12)
    ]
    assert returns[0] == returns[1] == returns[2]
    assert len(set(returns[0])) > 1  # the episodes are not all alike


def test_evaluation_seeds_and_training_seeds_are_disjoint():
    evaluation = set(evaluation_seeds(1000, 4, range(4))[0])
    assert evaluation == {2 * k + 1 for k in range(1000)}
    for seed in range(5):
        for seeds in training_seeds(seed, range(8)):
            training = zip(range(200), seeds)  # noqa: B905
            assert all(drawn % 2 == 0 for _, drawn in training)
