"""Classes that TRL's GRPOTrainer takes for `environment_factory`, used unchanged."""

import inspect
import sys
from functools import partial

import pytest
from own_files import location, work_in, write
from test_tools import call, contents
from transformers.utils import get_json_schema

import envs
from envs import make_env
from envs.pool.serial import training_seeds
from envs.text_env import act, begin

CLASSES = '''
import random

from envs.dialogue.dialogue_env import Dialogue
from envs.tools.tool_env import ToolEnv


class Guess:
    """Guess a number."""

    def reset(self, **kwargs) -> str | None:
        self.kwargs, self.tries = kwargs, 0
        self.number = random.randrange(1000)
        return f"It is below {self.number + 1}."

    def guess(self, number: int) -> str:
        """Guess the number.

        Args:
            number: Your guess.
        """
        self.tries += 1
        return "right" if number == self.number else "wrong"

    async def hint(self) -> dict:
        """Ask for a hint."""
        return {"number": self.number}

    @property
    def secret(self):
        raise RuntimeError("nobody may ask for it")

    def _help(self):
        pass

    def get_reward(self) -> float:
        return 1.0 / self.tries if self.tries else 0.0


class Silent(Guess):
    """The number is 7.

    Guess it."""

    def reset(self, prompt):
        super().reset()
        self.asked = prompt
        self.number = 7


class Prompted(Silent):
    prompt, system, max_turns = "Guess: ", "You guess.", 3

    def reset(self, seed):
        super().reset(None)
        return f"seed {seed}"

    async def get_reward(self):
        return -1.0


class Talk(Dialogue):
    pass


class NoReset:  # here NoReset
    def look(self) -> str:
        """Look."""


class NoReward:  # here NoReward
    def reset(self):
        pass


class NoTools(NoReward):
    def reset(self):  # here NoTools
        pass

    def get_reward(self):
        return 0.0


class Row(Guess):
    def reset(self, answer, **kwargs):  # here Row
        pass


class Number(Guess):
    def reset(self, **kwargs):  # here Number
        return 3


class Mute(NoTools):
    def reset(self):  # here Mute
        pass

    def look(self) -> str:
        """Look."""


class NoNumber(Guess):
    def get_reward(self):  # here NoNumber
        return None


class NoDocstring(Guess):
    def look(self) -> str:  # here NoDocstring
        return ""


class Torn:
    def __init__(self, size):
        self.size = size


class Raises(Guess):
    def __init__(self):
        raise KeyError("key")  # here Raises
'''


@pytest.fixture(autouse=True)
def classes(tmp_path, monkeypatch):
    work_in(write(tmp_path, {"trl_tools.py": CLASSES}), monkeypatch)
    yield
    sys.modules.pop("trl_tools", None)


def test_an_episode():
    env = make_env("tools:trl_tools:Guess")
    observation = begin(env, 4)
    thing = env.unwrapped.instance
    text = f"It is below {thing.number + 1}."
    assert observation.messages == ({"role": "user", "content": text},)
    # the arguments of a data set without text, as TRL makes one, and the seed
    assert thing.kwargs == {"seed": 4, "prompt": [{"role": "user", "content": ""}]}
    assert observation.template == {
        "tools": [get_json_schema(thing.guess), get_json_schema(thing.hint)]
    }
    step = act(env, call("guess", number=-1) + call("hint"))
    assert contents(step) == ["wrong", f'{{"number": {thing.number}}}'] and step.reward == 0.0
    assert contents(act(env, call("guess", number=thing.number))) == ["right"]
    step = act(env, "I have it.")
    assert (step.reward, step.terminated, step.success) == (0.5, True, True)
    assert step.metrics["tool_calls_per_turn"] == 1.0
    first = thing.number
    begin(env, 5)
    assert thing is env.unwrapped.instance and thing.number != first  # one object, as TRL keeps it
    assert begin(env, 4).text == text


def test_the_reward_at_the_turn_limit():
    env = make_env("tools:trl_tools:Guess", max_episode_steps=2, format_penalty=0.25)
    begin(env, 0)
    act(env, call("guess", number=-1))
    step = act(env, "<tool_call>")
    assert (step.reward, step.truncated, step.terminated) == (0.75, True, False)  # 1 - .25


def test_the_users_message_and_the_attributes():
    env = make_env("tools:trl_tools:Silent")
    observation = begin(env, 0)
    assert observation.text == "The number is 7.\n\nGuess it."
    assert env.unwrapped.instance.asked == [{"role": "user", "content": ""}]
    env = make_env("tools:trl_tools:Prompted")
    observation = begin(env, 9)
    assert (observation.system, observation.text) == ("You guess.", "Guess: seed 9")
    assert env.unwrapped.max_turns == 3
    step = act(env, "seven")
    assert (step.reward, step.success) == (-1.0, False)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_episode_is_played_again(workers, pool):
    one = pool(partial(make_env, "tools:trl_tools:Guess"), training_seeds(0, range(1)), workers)
    two = pool(partial(make_env, "tools:trl_tools:Guess"), training_seeds(0, range(1)), workers)
    one.reset()
    one.send(0, call("hint") + call("guess", number=1))
    ((_, step),) = one.poll()
    ((_, steps),) = two.resume(one.state_dict())
    assert steps == [step] and not two.faults


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("NoReset", "NoReset.reset is missing: a class with tools must be a ToolEnv or have reset"),
        ("NoReward", "NoReward.get_reward is missing: a class with tools must be a ToolEnv or "),
        ("NoTools", "NoTools.reset has no public method beside it that could be a tool"),
        ("Row", "Row.reset needs 'answer'; it gets seed and prompt, and no row of a dataset"),
        ("Number", "Number.reset returned 3; it must be None or a text"),
        ("Mute", "Mute.reset returned no text, and the class has neither a `prompt`"),
        ("NoNumber", "NoNumber.get_reward returned None; it must be a finite number"),
        ("NoDocstring", "tool 'look' needs a docstring, and a type hint and a line under Args:"),
        ("Raises", "environment 'tools:trl_tools:Raises' cannot be made: KeyError: 'key'"),
    ],
)
def test_mistakes_are_one_line(name, line, pool):
    envs = pool(partial(make_env, f"tools:trl_tools:{name}"), training_seeds(0, range(1)))
    with pytest.raises(ValueError) as raised:
        envs.reset()
        envs.send(0, "seven")
        envs.poll()
    assert str(raised.value).startswith(location("trl_tools.py", name) + line)
    assert "\n" not in str(raised.value)


def test_names():
    assert envs.family("tools:trl_tools:Guess") == "tools"
    for name, line in {
        "tools:trl_tools:Gues": "module 'trl_tools' has no class 'Gues'; choices: Guess, Silent, "
        "Prompted, Talk, ",
        "tools:trl_tools": "unknown environment 'trl_tools'; the form is tools:module:Class, as ",
        "tools::Guess": "unknown environment ':Guess'; the form is tools:module:Class, as in",
        "tools:none_such:Guess": "environment 'none_such:Guess' cannot be imported (ModuleNot",
        "tools:trl_tools:Torn": "environment 'tools:trl_tools:Torn' cannot be made: TypeError: ",
        "nothing": "unknown environment 'nothing'; nearest first: ",
    }.items():
        with pytest.raises(ValueError) as raised:
            make_env(name)
        assert str(raised.value).startswith(line), raised.value
        assert "\n" not in str(raised.value)


def test_the_tools_are_those_that_trl_takes():
    # of GRPOTrainer: the functions of the class but reset, get_reward and those with an underscore
    env = make_env("tools:trl_tools:Guess")
    begin(env, 0)
    kind = type(env.unwrapped.instance)
    names = [name for name, _ in inspect.getmembers(kind, predicate=inspect.isfunction)]
    ours = {"reset", "get_reward"}
    expected = [name for name in names if name not in ours and not name.startswith("_")]
    assert list(env.unwrapped.toolbox.functions) == expected == ["guess", "hint"]
