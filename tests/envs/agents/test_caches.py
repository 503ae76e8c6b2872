"""Caches that would answer for the policy."""

import sys
from functools import partial
from itertools import count
from types import SimpleNamespace

import agent_programs as agents
import pytest

from envs import make_env
from envs.agents import caches
from envs.errors import BrokenContract, EnvError
from envs.text_env import act, begin


@pytest.fixture(autouse=True)
def nothing_is_off(monkeypatch):
    monkeypatch.setattr(caches, "_off", set())


def test_langchains_cache_is_turned_off():
    pytest.importorskip("langchain_core.language_models")
    from langchain_core.caches import InMemoryCache
    from langchain_core.globals import get_llm_cache, set_llm_cache

    set_llm_cache(InMemoryCache())
    env = make_env("agent:agent_programs:echo", timeout=10)
    begin(env, 0)
    env.close()
    assert get_llm_cache() is None


def test_no_client_of_langchain_is_used_in_two_event_loops():
    pytest.importorskip("langchain_openai")
    pair = [make_env("agent:agent_programs:asks_langchain", timeout=30) for _ in range(2)]
    for seed in (0, 2):
        assert [begin(env, seed).text for env in pair] == [f"hello {seed}"] * 2
        assert [act(env, "hello").reward for env in pair] == [1, 1]
    for env in pair:
        env.close()


@pytest.mark.parametrize("shared", [False, True])
def test_each_episode_may_configure_dspy_where_an_agent_has_a_process(shared, monkeypatch):
    settings = SimpleNamespace(config_owner_thread_id=7, config_owner_async_task="one")
    monkeypatch.setitem(sys.modules, "dspy.dsp.utils.settings", settings)
    env = make_env("agent:agent_programs:echo", timeout=10, shared=shared)
    begin(env, 0)
    env.close()
    owner = (7, "one") if shared else (None, None)
    assert (settings.config_owner_thread_id, settings.config_owner_async_task) == owner


def test_other_caches_are_turned_off_once(monkeypatch):
    called = []
    dspy = SimpleNamespace(configure_cache=lambda **options: called.append(options))
    litellm = SimpleNamespace(disable_cache=lambda: called.append("litellm"))
    monkeypatch.setitem(sys.modules, "dspy", dspy)
    monkeypatch.setitem(sys.modules, "litellm", litellm)
    caches.turn_off()
    caches.turn_off()
    off = {"enable_disk_cache": False, "enable_memory_cache": False}
    assert len(called) == 2 and "litellm" in called and off in called


def test_a_program_that_ends_without_asking_hears_of_caches(monkeypatch):
    monkeypatch.setattr(caches, "turn_off", lambda: None)
    for library in caches.CALLS:
        monkeypatch.delitem(sys.modules, library, raising=False)
    env = make_env("agent:agent_programs:ends_at_once")
    line = r"without asking http.*; has a cache answered for the policy\? If so, "
    with pytest.raises(BrokenContract, match=line + "turn it off"):
        begin(env, 0)
    monkeypatch.setitem(sys.modules, "litellm", SimpleNamespace())
    with pytest.raises(BrokenContract, match=line + r"litellm.disable_cache\(\) turns it off"):
        begin(env, 0)
    env.close()


def test_dspy_gets_an_empty_directory_before_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "dspy.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dspy", raising=False)
    monkeypatch.setenv("DSPY_CACHEDIR", "mine")
    caches.prepare()
    assert caches.os.environ["DSPY_CACHEDIR"] == "mine"  # the user's own choice stays
    monkeypatch.delenv("DSPY_CACHEDIR")
    caches.prepare()
    assert "dspy-cache-" in caches.os.environ["DSPY_CACHEDIR"]


def test_a_cache_that_answers_later_episodes_ends_the_run_without_rests(pool):
    agents.SHARED.clear()
    envs = pool(partial(make_env, "agent:agent_programs:keeps_the_first_answer"), [count(2, 2)])
    envs.reset()
    envs.send(0, "yes")
    line = (
        "12 faults in a row, .*keeps_the_first_answer ended without asking .*has a cache answered"
    )
    with pytest.raises(EnvError, match=line):
        while True:
            envs.poll()
    agents.SHARED.clear()
