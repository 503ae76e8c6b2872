"""Agents that share a process are played side by side before their episodes begin."""

from functools import partial
from types import SimpleNamespace

import agent_programs as agents
import pytest

from common.plugins import UserError
from envs import make_env
from envs.agents import endpoint, side_by_side
from envs.pool import make


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(endpoint, "REFUSAL_SECONDS", 0.01)
    monkeypatch.setattr(side_by_side, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(side_by_side, "_checked", set())
    agents.SHARED.clear()
    agents.PLAYED.clear()


def shared(program: str):
    return partial(make_env, f"agent:agent_programs:{program}", shared=True)


CROSSING = ["overwrites", "overwrites_for_threads", "keeps_the_first_key"]


@pytest.mark.parametrize("program", CROSSING)
@pytest.mark.parametrize("threads", [0, 2])
def test_a_global_client_ends_the_run_before_its_first_turn(pool, program, threads):
    envs = pool(shared(program), [[2], [4]], threads=threads)
    with pytest.raises(UserError) as raised:
        envs.reset()  # without the check, the last two would wait until their time is up
    line = str(raised.value)
    assert f"{program}: an agent asked with the API key of another agent" in line
    assert "dspy.configure" in line and "--env-workers with the number of --n-env" in line


def test_parallel_requests_and_slow_programs_are_no_strangers(pool):
    envs = pool(shared("asks_twice_or_late"), [[4], [6]])
    one, other = envs.reset()
    assert one.text in ("one", "two") and other.text == "late"
    assert agents.PLAYED == [4, 6, 4, 6]  # the check's two episodes, then those of the run


def test_a_program_that_ends_beside_parallel_requests_is_no_stranger(pool):
    envs = pool(shared("asks_thrice_or_works"), [[4], [6]])
    assert all(first.text in ("one", "two", "three") for first in envs.reset())


def test_a_process_plays_a_program_side_by_side_once(pool):
    for _ in range(2):
        envs = pool(shared("shares_connections"), [[2], [4], [6]])
        assert [first.text for first in envs.reset()] == ["2: 0", "4: 0", "6: 0"]
        assert not envs.faults
    assert len(side_by_side._checked) == 1


def test_a_program_that_fails_is_told_by_its_first_episode(pool):
    with pytest.raises(UserError, match="KeyError"):
        pool(shared("early_crash"), [[2], [4]]).reset()


@pytest.mark.parametrize("workers, alone", [(0, 0), (1, 0), (2, 1), ("threads:2", 0)])
def test_only_agents_that_share_a_process_are_played(workers, alone, monkeypatch):
    environment = SimpleNamespace(
        env_name="agent:agent_programs:echo", max_episode_steps=None, format_penalty=0.1, data=None,
        prompts=None, on_invalid="default", env_workers=workers, upstream=None, memory="verbatim",
    )  # fmt: skip
    generation = SimpleNamespace(
        model="", prompt_limit=100, template_kwargs={}, endpoint_sampling="refuse"
    )
    monkeypatch.setattr(make, "ResilientPool", lambda make, *args, **options: make)
    assert make.make_envs(environment, generation, [[2], [4]]).keywords["shared"] is not bool(alone)
