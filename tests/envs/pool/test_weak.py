"""`--env-name ...=weak`: after a failure an environment often plays the same task again."""

import json
from collections import Counter

import pytest
from conftest import make_step

from arguments import get_args
from envs.mixture import draw_task, tasks_of, weak_tasks
from envs.pool.groups import DrawnSeeds
from envs.pool.make import make_envs
from envs.pool.serial import EpisodeSeeds
from envs.pool.weak import WeakSeeds, episode_seeds

NAME = "babyai-goto=weak,babyai-pickup=weak,babyai-open"
TASKS = tasks_of(NAME)


def seeds_of(i: int = 0) -> WeakSeeds:
    (seeds,) = episode_seeds(NAME, 1, range(i, i + 1), 0)
    return seeds


def played(fails: set[str], episodes: int, i: int = 0) -> list[str]:
    """Return the tasks of an environment that fails in those of `fails` and in no others."""
    seeds, tasks = seeds_of(i), []
    seed = next(seeds)
    for _ in range(episodes):
        tasks.append(draw_task(TASKS, seed))
        seed = seeds.after(seed, make_step(terminated=True, success=tasks[-1] not in fails))
    return tasks


def test_which_tasks_are_weak():
    assert weak_tasks(NAME) == {"babyai-goto", "babyai-pickup"}
    assert [*TASKS.values()] == [1.0, 1.0, 1.0]
    assert weak_tasks("baba-two_room-*=weak") == {*tasks_of("baba-two_room-*")}
    for name in ("babyai-goto,babyai-open=2", "crafter", "babyai-*"):
        assert weak_tasks(name) == set()
        assert not isinstance(episode_seeds(name, 1, range(1), 0)[0], WeakSeeds)


def test_a_task_that_fails_comes_four_times_as_often():
    # goto fails: after it comes goto with .75 + .25 / 3 = 5/6; after another task with 1/3. Its
    # share s = s 5/6 + (1 - s) / 3 is 2/3, and of the others 1/6 each: four times as often
    shares = Counter(task for i in range(20) for task in played({"babyai-goto"}, 300, i))
    assert shares["babyai-goto"] / 6_000 == pytest.approx(2 / 3, abs=0.03)
    assert shares["babyai-pickup"] / 6_000 == pytest.approx(1 / 6, abs=0.03)


def test_success_and_tasks_that_are_not_weak_change_nothing():
    plain = DrawnSeeds(EpisodeSeeds(1, 0))
    expected = [draw_task(TASKS, next(plain)) for _ in range(50)]
    assert played(set(), 50) == played({"babyai-open"}, 50) == expected


def test_a_fault_is_no_failure():
    seeds, plain = seeds_of(), DrawnSeeds(EpisodeSeeds(1, 0))
    seed = next(seeds)
    assert seed == next(plain)
    for _ in range(50):
        seed = seeds.after(seed, make_step(truncated=True, fault="it hangs"))
        assert seed == next(plain)


def test_a_saved_run_goes_on_with_the_same_episodes(pool_of):
    begun = pool_of()
    begun.reset()
    for _ in range(9):  # episodes of two turns, which fail
        turn(begun)
    state = json.loads(json.dumps(begun.state_dict()))
    assert any(each.get("substitutes") for each in state)
    resumed = pool_of()
    resumed.resume(state)
    for _ in range(6):
        assert [begun.position(i) for i in range(4)] == [resumed.position(i) for i in range(4)]
        assert turn(begun) == turn(resumed)


@pytest.fixture
def pool_of():
    pools = []

    def make():
        args = get_args(["--env-name", NAME, "--max-episode-steps", "2", "--n-env", "4"])
        seeds = episode_seeds(NAME, 1, range(4), 0)
        pools.append(make_envs(args.environment, args.generation, seeds))
        return pools[-1]

    yield make
    for each in pools:
        each.close()


def turn(envs) -> dict:
    """Let all environments take a turn; return their Steps."""
    for i in range(envs.n_env):
        envs.send(i, "ACTION: turn left")
    steps = {}
    while len(steps) < envs.n_env:
        steps |= dict(envs.poll())
    return steps


def test_groups_play_one_task(capsys):
    command = ["--env-name", NAME, "--advantages", "grpo", "--group-size", "4"]
    with pytest.raises(SystemExit):
        get_args(command)
    assert "=weak follows the success of each environment" in capsys.readouterr().err
