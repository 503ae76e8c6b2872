"""Environments by name, and foreign ones in the same contract."""

import random
import re
import sys
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Text

import envs
from envs.foreign import choose
from envs.pool.make import make_envs
from envs.pool.serial import training_seeds
from envs.registered import announce_time_limit
from envs.variants import make_variant


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("babyai-goto", "babyai"),
        ("babyai-pickup", "babyai"),
        ("babyai-open", "babyai"),
        ("babyai-putnext", "babyai"),
        ("babyai-pick-up-seq-go-to", "babyai"),
        ("baba-two_room-goto_win", "babaisai"),
        ("crafter", "crafter"),
        ("tools-shop", "shop"),
        ("toy", "toy"),
    ],
)
def test_names(name, family):
    env = envs.make_env(name, format_penalty=0.3, max_episode_steps=None)
    assert env.family == family == envs.family(name)
    assert envs.family_class(family) is type(env)
    assert env.format_penalty == 0.3
    text, info = env.reset(seed=3)
    assert text and {"system", "instruction", "kept"} <= set(info)
    assert env.reset(seed=3)[0] == text


def test_options_of_none_leave_the_environments_defaults():
    natural = envs.make_env("babyai-open").max_episode_steps
    assert envs.make_env("babyai-open", max_episode_steps=None).max_episode_steps == natural
    assert envs.make_env("babyai-open", max_episode_steps=7).max_episode_steps == 7


def test_every_family_names_its_class():
    known = {"babyai", "baba", "crafter", "dialogue-guess", "gsm8k", "tools-calculator"}
    known |= {"tools-shop", "toy", "errands", "told"}
    assert set(envs.ENVS) == known
    assert all(re.fullmatch(r"envs\.\w+\.\w+:\w+", path) for path in envs.ENVS.values())


@pytest.mark.parametrize(
    "name", ["babyai-gotoo", "babyai", "babyai-", "toy-goto", "to", "", "toy-"]
)
def test_unknown_names(name):
    for function in (envs.make_env, envs.family):
        with pytest.raises(ValueError, match="unknown environment .* nearest first") as raised:
            function(name)
        message = str(raised.value)
        nearest = message.partition("first: ")[2].partition(";")[0].split(", ")
        assert len(set(nearest) & set(envs.names())) == 5 and "module:EnvId" in message
        assert "\n" not in message and len(message) < 300


def test_nearest_name_comes_first():
    with pytest.raises(ValueError, match="nearest first: babyai-pickup, "):
        envs.make_env("babyai-pikup")


def test_missing_package(monkeypatch):
    monkeypatch.setitem(envs.ENVS, "moon", "no_such_package.moon:Moon")
    with pytest.raises(ValueError, match="moon-walk needs the package no_such_package"):
        envs.make_env("moon-walk")
    with pytest.raises(ValueError, match="unknown environment 'son'; .* moon"):
        envs.make_env("son")


def test_foreign_with_actions():
    env = envs.make_env("small_envs:SmallLamp-v0", format_penalty=0.25)
    assert envs.family("small_envs:SmallLamp-v0") == "foreign"
    text, info = env.reset(seed=1)
    assert text == info["kept"] == "It is dark.\nVery dark."
    assert info["system"] == "Light the lamp."
    assert info["instruction"].endswith("ACTION: One valid action from the allowed set.")

    response = "THINK: hm\nACTION: fly"
    text, reward, terminated, truncated, info = env.step(response)
    assert (text, reward, terminated, truncated) == ("You did: wait", -0.25, False, False)
    assert (info["action"], info["valid"], info["success"]) == ("wait", False, False)
    assert info["kept_response"] == "THINK: hm\nACTION: wait"
    assert info["action_at"] == response.index("ACTION:")

    text, reward, terminated, truncated, info = env.step("ACTION: Light lamp.\nThen rest.")
    assert (text, reward, terminated, truncated) == ("You did: light lamp", 2.0, True, False)
    assert (info["action"], info["valid"], info["success"]) == ("light lamp", True, True)
    assert info["kept_response"] == "ACTION: Light lamp.\nThen rest."
    assert info["metrics"] == {"lit": 1.0}


def test_an_invalid_response_may_end_a_foreign_episode():
    env = make_variant("small_envs:SmallLamp-v0", on_invalid="end")
    env.reset(seed=1)
    assert env.step("ACTION: wait")[2:4] == (False, False)
    _, reward, terminated, _, info = env.step("ACTION: fly")
    assert (reward, terminated, info["success"]) == (-0.1, True, False)
    with pytest.raises(ValueError, match="end: tools:tool_envs:Shop reads whole messages"):
        make_variant("tools:tool_envs:Shop", on_invalid="end")


def test_foreign_time_limit():
    env = envs.make_env("small_envs:SmallLamp-v0", max_episode_steps=2)
    env.reset(seed=1)
    assert env.step("ACTION: wait")[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step("ACTION: wait")
    assert (terminated, truncated, info["success"]) == (False, True, False)


class Restless(gymnasium.Env):
    """Without a time limit; it rolls with the generators that the whole process shares."""

    observation_space = action_space = Text(1000)

    def reset(self, *, seed=None, options=None):
        return self._roll(), {}

    def step(self, action):
        if action == "fail":
            raise KeyError(action)
        return self._roll(), 0.0, False, False, {}

    def _roll(self):
        return f"{random.random()} {np.random.random()}"


gymnasium.register("Restless-v0", Restless)
gymnasium.register("Brief-v0", Restless, max_episode_steps=2)
RESTLESS = "test_envs:Restless-v0"


def length(env) -> int:
    env.reset(seed=1)
    steps = (env.step("ACTION: x") for _ in range(2000))
    return next(k for k, step in enumerate(steps, 1) if step[3])


def test_a_foreign_environment_has_a_time_limit():
    assert length(envs.make_env(RESTLESS)) == 1000
    assert length(envs.make_env(RESTLESS, max_episode_steps=3)) == 3
    assert length(envs.make_env("test_envs:Brief-v0")) == 2
    assert length(envs.make_env("test_envs:Brief-v0", max_episode_steps=3)) == 3


@pytest.mark.parametrize(
    ("name", "typed", "lines"), [("Restless", None, 1), ("Restless", 9, 0), ("Brief", None, 0)]
)
def test_an_implied_time_limit_is_announced_once(name, typed, lines, capfd):
    announce_time_limit.cache_clear()
    args = SimpleNamespace(
        env_name=f"test_envs:{name}-v0", format_penalty=0.1, max_episode_steps=typed, data=None,
        prompts=None, on_invalid="default", memory="window", env_workers="2,timeout=60",
    )  # fmt: skip
    for _ in range(2):  # training and an evaluation
        vec_env = make_envs(args, None, training_seeds(0, range(4)))
        assert len(vec_env.reset()) == 4
        vec_env.close()
    output = capfd.readouterr().out
    assert output.count("\n") == lines == output.count("1000 turns, unless --max-episode-steps")


def test_a_foreign_environment_has_random_numbers_of_its_own():
    def play(env, other=None) -> list[str]:
        texts = [env.reset(seed=5)[0]]
        for _ in range(3):
            if other:
                other.step("ACTION: x")
            texts.append(env.step("ACTION: x")[0])
        return texts

    before = random.getstate(), np.random.get_state()[1].tolist()
    one, two = envs.make_env(RESTLESS), envs.make_env(RESTLESS)
    alone = play(one)
    two.reset(seed=7)
    assert play(one, other=two) == alone and len(set(alone)) == 4
    with pytest.raises(KeyError):
        one.step("ACTION: fail")
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    shared = envs.make_env(RESTLESS, own_random=False)
    assert play(shared) != alone
    assert random.getstate() != before[0]


def test_threads_leave_the_random_state_alone():
    args = SimpleNamespace(
        env_name=RESTLESS, format_penalty=0.1, max_episode_steps=4, data=None, prompts=None,
        on_invalid="default", memory="window",
        env_workers="threads:1",
    )  # fmt: skip
    random.seed(9)
    expected, before = random.random(), np.random.get_state()
    random.seed(9)
    vec_env = make_envs(args, None, training_seeds(0, range(1)))
    # nothing is seeded: the first number is the next one of the whole process
    assert vec_env.reset()[0].text.startswith(str(expected))
    vec_env.close()
    np.random.set_state(before)


def test_foreign_free_text():
    env = envs.make_env("small_envs:SmallEcho-v0")
    text, info = env.reset(seed=1)
    assert (text, info["kept"], info["system"]) == ("Speak!", "(cave)", "You are in a cave.")
    assert info["instruction"].endswith("ACTION: what you do.")
    text, reward, terminated, _, info = env.step("THINK: ACTION: no\nACTION: Hello,\nyou!")
    assert (text, reward, terminated) == ("You hear: Hello,\nyou!", 1.0, False)
    assert (info["valid"], info["instruction"]) == (True, "Shout.")
    assert env.step("no marker")[0] == "You hear: no marker"
    # the environment's own word counts: it terminates with a reward, but is no success
    _, _, terminated, _, info = env.step("ACTION: bye")
    assert (terminated, info["success"]) == (True, False)


def test_foreign_without_a_system_prompt():
    _, info = envs.make_env("small_envs:SmallPlain-v0").reset()
    assert info["system"] == "You act in a text environment, one action per turn."


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("small_envs:SmallNumber-v0", r"has a space Discrete\(3\); .* must both be .*Text"),
        ("small_envs:SmallLimp-v0", "cannot be made: .*SmallLimp"),
        (
            "no_such_module:SmallLamp-v0",
            r"^environment 'no_such_module:SmallLamp-v0' cannot be imported "
            r"\(ModuleNotFoundError: No module named 'no_such_module'\); the form is module:EnvId",
        ),
        ("small_envs:", "^unknown environment 'small_envs:'; the form is module:EnvId, as in my_"),
        (":SmallLamp-v0", "^unknown environment ':SmallLamp-v0'; the form is"),
        ("small-envs:SmallLamp-v0", "^unknown environment 'small-envs:SmallLamp-v0'; the form is"),
    ],
)
def test_foreign_mistakes(name, message):
    with pytest.raises(ValueError, match=message) as raised:
        envs.make_env(name)
    assert "\n" not in str(raised.value)


MY_ENV = """
import gymnasium
from gymnasium.spaces import Text

class Door(gymnasium.Env):
    observation_space = action_space = Text(100)
    actions = ("knock", "wait")

    def reset(self, *, seed=None, options=None):
        return "The door is shut.", {}

    def step(self, action):
        return f"You {action}.", 1.0, action == "knock", False, {}

gymnasium.register("Door-v0", Door)
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_foreign_in_the_working_directory(workers, pool, tmp_path, monkeypatch):
    # main.py appends the working directory to sys.path; workers inherit it
    (tmp_path / "my_env_of_the_test.py").write_text(MY_ENV)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    name = "my_env_of_the_test:Door-v0"
    vec_env = pool(partial(envs.make_env, name), training_seeds(0, range(1)), workers)
    assert vec_env.reset()[0].text == "The door is shut."
    vec_env.send(0, "THINK: hello\nACTION: knock")
    ((_, step),) = vec_env.poll()
    assert (step.action, step.valid, step.reward, step.terminated) == ("knock", True, 1.0, True)


def test_foreign_that_fails_on_import(tmp_path, monkeypatch):
    (tmp_path / "torn_env_of_the_test.py").write_text("def")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(ValueError, match=r"cannot be imported \(SyntaxError: .*module:EnvId") as e:
        envs.make_env("torn_env_of_the_test:Door-v0")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("response", "action", "valid"),
    [
        ("ACTION: go north", "go north", True),
        ("action: **Go_North!**", "go north", True),
        ("ACTION: stay\nACTION: 'GO NORTH'\nbecause", "go north", True),
        ("go north", "go north", True),
        ("ACTION:\n go north", "go north", True),
        ("ACTION: +", "+", True),
        ("ACTION: GO", "GO", True),
        ("ACTION: go", "go", True),
        ("ACTION: go north now", "stay", False),
        ("ACTION:", "stay", False),
        ("", "stay", False),
    ],
)
def test_choose(response, action, valid):
    actions = ["go north", "stay", "+", "-", "go", "GO"]
    assert choose(response, actions, "stay") == (action, valid)
