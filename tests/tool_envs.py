"""Environments with tools for the tests; importing this module registers `Shop`."""

import random
import time
from typing import Literal

import gymnasium
import numpy as np

from envs.tools.tool_env import ToolEnv


def double(x: int, kind: Literal["plain", "loud"] = "plain") -> str:
    """
    Double a number.

    Args:
        x: The number.
        kind: How to say it.

    Returns:
        The number twice.
    """
    return f"{2 * x}{'!' if kind == 'loud' else ''}"


class Shop(ToolEnv):
    """Has a basket for each episode. Its __init__ does not call ToolEnv's."""

    system = "You shop."
    max_turns = 6

    def __init__(self):
        self.name = "shop"

    def put(self, thing: str, count: int = 1) -> dict:
        """Put things into the basket.

        Args:
            thing: What to put there.
            count: How many of them.
        """
        if thing == "stone":
            raise ValueError("there are no stones")
        self.basket[thing] = self.basket.get(thing, 0) + count
        self.pay(0.1 * count)
        return self.basket

    def price(self, of: list[str], at: float | None = None) -> float:
        """Tell a price.

        Args:
            of: Names of things.
            at: When.
        """
        return len(of) * 1.5

    async def wait(self) -> None:
        """Wait for nothing."""

    def leave(self) -> str:
        """Leave the shop."""
        self.end()
        return "You left."

    tools = [put, price, double, "wait", leave]

    def question(self, seed: int) -> str:
        self.basket = {}
        return f"Buy {self.np_random.integers(100)} of {random.randrange(100)}."

    def answered(self, text: str) -> str | None:
        return "Yes?" if text.endswith("?") else None

    def reward(self, answer: str) -> float:
        return 1.0 if answer == str(self.basket) else -1.0

    def episode_metrics(self) -> dict[str, float]:
        return {"basket": len(self.basket)}


gymnasium.register("Shop-v0", Shop)
gymnasium.register("ShortShop-v0", Shop, max_episode_steps=2)


class Odd(ToolEnv):
    """Tools that misbehave."""

    max_result_characters = 50
    late = ""

    def sleep(self, seconds: float) -> str:
        """Sleep, then say so.

        Args:
            seconds: How long.
        """
        time.sleep(seconds)
        self.late = "woke up"
        return "slept"

    def spin(self) -> str:
        """Never end."""
        while True:
            pass

    def fail(self, how: str) -> str:
        """Raise an exception.

        Args:
            how: Its name.
        """
        errors = {"key": KeyError("x"), "exit": SystemExit(3), "none": RuntimeError()}
        raise (errors | {"late": TimeoutError()})[how]

    def huge(self) -> str:
        """Say much."""
        return "a" * 500 + "ü" * 500

    def give(self, what: str) -> object:
        """Return something.

        Args:
            what: Its name.
        """
        things = {
            "none": None,
            "text": 'Ä "quoted"',
            "list": ["ö", 1, None],
            "dict": {"ß": True},
            "array": np.arange(3),
            "number": np.int64(7),
            "set": {"b", "a"},
            "empty": "",
            "keys": {(1, 2): {np.int64(3): [{None: 4}]}},
        }
        return things[what]

    def first(self, things: list[str]) -> str:
        """Take the first thing out of a list.

        Args:
            things: Names of things.
        """
        return things.pop(0)

    tools = ("sleep", "spin", "fail", "huge", "give", "first")

    def question(self, seed: int) -> str:
        return "Try them."

    def reward(self, answer: str) -> float:
        return 0.0
