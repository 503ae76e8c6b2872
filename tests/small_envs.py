"""Small environments for the tests of the pool, and foreign ones that an import registers."""

import asyncio
import os
import re
import sys
import time
from pathlib import Path

import gymnasium
from gymnasium.spaces import Discrete, Text

from envs.text_env import act

TEXT = Text(1000)


class Dice(gymnasium.Env):
    """Shows the episode's seed, the turn and a roll. Words in the response are commands.

    An episode ends with the command "end" or the third turn. It keeps the contract of environments
    without a base class.
    """

    def __init__(self, folder: str = ""):
        self.folder = Path(folder)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.steps = seed, 0
        return self._text(), self._info()

    def step(self, response):
        self.steps += 1
        if "raise" in response:
            raise KeyError("lost")
        if "leave" in response:
            sys.exit("enough")
        if "cancel" in response:
            raise asyncio.CancelledError  # a BaseException, but not an Exception
        if "exit" in response:
            os._exit(7)
        if "nap" in response:
            time.sleep(2.5)
        if "sleep" in response:
            time.sleep(10**6)
        if "spin" in response:  # hangs in C code
            re.match("(a+)+b", "a" * 60)
        while "wait" in response and not (self.folder / "go").exists():
            time.sleep(0.01)
        text = {"silent": "", "number": 3}.get(response, self._text())
        terminated, truncated = "end" in response, self.steps == 3
        info = self._info()
        info.update(
            kept_response=f"said {response}",
            action="roll",
            valid=True,
            action_at=0,
            success=terminated,
        )
        if terminated or truncated:
            info["metrics"] = {"turns": float(self.steps)}
        reward = float("nan") if response == "nan" else 0.5
        return text, reward, terminated, truncated, info

    def _text(self):
        roll = self.np_random.integers(10**6)
        return f"seed {self.seed} turn {self.steps} roll {roll}"

    def _info(self):
        return dict(kept="kept", system="system", instruction="instruction")


class Modules(Dice):
    """Shows the modules that its process has imported."""

    def _text(self):
        return " ".join(sorted(sys.modules))


class Moody(Dice):
    """Shows a random text that does not depend on the seed."""

    def _text(self):
        return f"mood {os.urandom(8).hex()}"


class Flaky(Dice):
    """Fails in the second turn of every third episode."""

    def step(self, response):
        return super().step("raise" if self.steps == 1 and self.seed % 3 == 0 else response)


class SlowestFirst(Dice):
    """Waits for a file in each turn of an episode with a small seed."""

    def step(self, response):
        return super().step("wait" if self.seed < 10 else "go on")


class Picky(Dice):
    """Cannot begin the episode of one seed."""

    def __init__(self, bad: int):
        super().__init__()
        self.bad = bad

    def reset(self, *, seed=None, options=None):
        if seed == self.bad:
            raise KeyError(seed)
        return super().reset(seed=seed)


def broken(message: str):
    """Raises ValueError instead of making an environment."""
    raise ValueError(message)


class Lamp(gymnasium.Env):
    """Has all optional attributes of a foreign environment. The task is to light the lamp."""

    observation_space = action_space = TEXT
    actions = ("Take_Lamp", "light lamp", "wait")
    default_action = "wait"
    penalty = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "It is dark.\nVery dark.", {}

    def step(self, action):
        assert action in self.actions
        lit = action == "light lamp"
        return f"You did: {action}", 2.0 * lit, lit, False, {"metrics": {"lit": 1.0}} if lit else {}

    def system_prompt(self):
        return "Light the lamp."


class Echo(gymnasium.Env):
    """Takes any text, and gives its description only in `info`."""

    observation_space = action_space = TEXT

    def reset(self, *, seed=None, options=None):
        return "Speak!", {"system": "You are in a cave.", "kept": "(cave)"}

    def step(self, action):
        over = action == "bye"
        info = {"system": "You are in a cave.", "success": False, "instruction": "Shout."}
        return f"You hear: {action}", 1.0, over, False, info


class Plain(Echo):
    """Takes any text, and has no description."""

    def reset(self, *, seed=None, options=None):
        return "Speak!", {}


class Number(gymnasium.Env):
    """Not a text environment."""

    observation_space = TEXT
    action_space = Discrete(3)


for env_class in (Lamp, Echo, Plain, Number):
    gymnasium.register(f"Small{env_class.__name__}-v0", env_class, max_episode_steps=5)


def turn(env, remembered, response: str):
    """Let an environment take a turn, and its memory remember it. Returns the Step."""
    step = act(env, response)
    remembered.update(step)
    return step
