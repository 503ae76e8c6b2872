"""Errands by hand: what is told, what each action does, and what an episode pays."""

import pytest

from envs import make_env
from envs.games.errands import ASKS, OVER, PLACES, TASKS, THANKS, Errands
from envs.text_env import act, begin

# seed 0 of errands-20: the list, and the street from west to east
FIRST = """\
Your errands, in this order: inn white, forge blue.
You will not be told again.
You are at the mill.
Ways: chapel west 4, inn east 4, bakery west 8, forge west 12"""


def play(env, *actions: str) -> list:
    return [act(env, f"ACTION: {action}") for action in actions]


def started(task: str = "20", seed: int = 0, **options):
    env = Errands(task, **options)
    return env, begin(env, seed)


def test_an_episode_by_hand():
    env, first = started()
    assert first.text == FIRST and first.kept == FIRST.partition("\nWays")[0]
    way = [*["go east"] * 4, "ring", "say white", *["go west"] * 16, "ring", "say blue"]
    steps = play(env, *way)
    assert [step.reward for step in steps if step.reward] == [0.5, 0.5]
    assert steps[3].observation.text == (
        "You are at the inn.\nWays: mill west 4, chapel west 8, bakery west 12, forge west 16"
    )
    assert steps[4].observation.text.startswith(f"{ASKS}\nYou are at the inn.")
    assert steps[5].observation.kept == f"{THANKS}\nYou are at the inn."
    last = steps[-1]
    assert last.terminated and last.success and last.metrics == {"errands_done": 1.0}


@pytest.mark.parametrize(
    ("actions", "ends"),
    [
        (["ring"], True),  # the mill is not the inn
        ([*["go east"] * 4, "ring", "say red"], True),
        (["go east", "ring", "say white", "wait"], False),  # nobody is on the street
        ([*["go east"] * 4, "say white"], False),  # nobody has asked
        ([*["go east"] * 4, "ring", "wait", "say red"], False),  # the voice asks once
        (["go east"] * 9, False),  # the street ends at the inn
    ],
)
def test_mistakes_end_the_errands_and_idle_words_do_not(actions, ends):
    env, _ = started()
    steps = play(env, *actions)
    last = steps[-1]
    assert (last.terminated, last.success, last.reward) == (ends, False, 0.0)
    assert (OVER in last.observation.text) == ends


def test_only_the_first_observation_tells():
    env, first = started("60")
    told = {word for _, word in env.errands}
    steps = play(env, *["go east", "go west"] * 20)
    assert not any(word in step.observation.text for step in steps for word in told)
    assert all(word in first.text for word in told)


@pytest.mark.parametrize("task", TASKS)
def test_episodes_follow_from_their_seeds(task):
    env, first = started(task, seed=3)
    again, same = started(task, seed=3)
    other, another = started(task, seed=4)
    assert first == same and first != another and env.errands == again.errands
    places = [place for place, _ in env.errands]
    assert len(places) == TASKS[task].errands and {*places} <= {*PLACES}
    assert all(a != b for a, b in zip(places, places[1:], strict=False))
    assert sorted(env.street.values()) == [n * TASKS[task].apart for n in range(5)]


def test_the_limit_and_a_wrong_name():
    env, _ = started(max_episode_steps=3)
    assert [step.truncated for step in play(env, *["wait"] * 3)] == [False, False, True]
    assert make_env("errands-200").max_episode_steps == 640
    with pytest.raises(
        ValueError, match="unknown environment 'errands-30'; nearest first: errands"
    ):
        make_env("errands-30")
