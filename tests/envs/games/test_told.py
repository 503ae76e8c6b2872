"""BabyAI rooms whose mission is told once: what is told, and what ends an episode."""

import numpy as np
import pytest

from envs.games.told import RIGHT, TASKS, THINGS, TOLD, WRONG, Told
from envs.text_env import act, begin
from models.players.told import Player
from models.remembering import episode, remembering


def test_the_mission_stands_in_the_first_observation_alone():
    env = Told("pickup-2")
    first = begin(env, 0)
    line, *seen = first.text.split("\n")
    (a, b), (c, d) = env.level.wanted
    assert line == f"{TOLD}pick up the {a} {b}, then the {c} {d}." and seen
    after = act(env, "ACTION: turn left").observation
    assert TOLD not in after.text and a not in first.system and first.system == after.system


@pytest.mark.parametrize("task", TASKS)
def test_a_room_has_six_different_things(task):
    env = Told(task)
    for seed in range(3):
        begin(env, seed)
        things = [(t.color, t.type) for t in env.level.grid.grid if t and t.can_pickup()]
        assert len({*things}) == len(things) == THINGS and {*env.left} <= {*things}
        assert len({*env.left}) == TASKS[task][0]


def played(wanted) -> list:
    """The Steps of a player that walks to things in the order that `wanted(env)` names."""
    player = Player("pickup-2", np.random.default_rng(0))
    env, done, steps = player.env, False, []
    begin(env, 0)
    player.start()
    order = wanted(env)
    while not done:
        action = player.act(order[0])
        steps.append(act(env, f"ACTION: {action}"))
        if RIGHT in steps[-1].observation.text:
            del order[0]
        done = steps[-1].done
    return steps


def test_the_right_order_succeeds_and_a_wrong_one_ends():
    steps = played(lambda env: list(env.level.wanted))
    assert sum(RIGHT in step.observation.text for step in steps) == 2
    assert steps[-1].success and [s.reward for s in steps if s.reward] == [1.0]
    steps = played(lambda env: env.level.wanted[::-1])
    last = steps[-1]
    assert last.terminated and not last.success and last.reward == 0
    assert last.observation.text.startswith(WRONG)


@pytest.mark.parametrize(
    ("memory", "length", "succeeds"),
    [("notes", 0, True), ("summary", 4, True), ("full", 0, True), ("window", 1, False)],
)
def test_what_a_reader_of_prompts_reaches(memory, length, succeeds):
    player = Player("pickup-2", np.random.default_rng(0))
    env, remembered = remembering(player.env, memory, length)
    ends = [[step for _, _, step in episode(player, env, remembered, s)][-1] for s in range(8)]
    wins = sum(step.success for step in ends)
    assert wins == 8 if succeeds else wins <= 2
