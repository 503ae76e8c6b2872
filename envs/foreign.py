"""Adapts any gymnasium environment whose observations and actions are Text to our contract.

The environment may define more. Its `info` may have "system" (the system message), "kept",
"instruction", "success" and "metrics". Its attributes may be `actions` (strings, one of which a
response must name), `default_action` (runs in place of an invalid one) and `system_prompt` (a
string or a function). Without `actions`, all text after the last ACTION marker is the action.

An environment with the attribute `speaks_messages = True`, like every `ToolEnv` and `Dialogue`,
gets the whole response, parses it by itself, and returns all that a `Step` needs.
"""

import contextlib
import random
import re
from collections.abc import Sequence

import gymnasium
import numpy as np

from common.chat import after_thought
from envs.actions import plain, split
from envs.contract import breach, check_actions
from envs.text_env import THINK_ACT, executed

THINK_SAY = THINK_ACT.replace("One valid action from the allowed set", "what you do")
MARKER = re.compile(r"(?i:action)[\s*_`]{0,3}:?")


class ForeignEnv(gymnasium.Wrapper):
    """Adds what `envs.text_env.TextEnv` has: parsing, the format penalty, info.

    own_random: whether this environment has its own state of `random` and `numpy.random` during
        reset and step, seeded with each episode. Then environments in one process do not disturb
        each other, and episodes can be replayed. It must be False with threads: one thread would
        swap the state while others use it.
    """

    names_actions = True

    def __init__(self, env: gymnasium.Env, format_penalty: float = 0.1, own_random: bool = True):
        super().__init__(env)
        self.format_penalty, self.own_random = format_penalty, own_random
        self.random_states = random.getstate(), np.random.get_state()
        actions = getattr(env.unwrapped, "actions", None)
        if actions is not None:
            check_actions(env, actions)
        self.actions = tuple(actions or ())
        first = self.actions[0] if self.actions else ""
        self.default_action = getattr(env.unwrapped, "default_action", first)
        if not isinstance(self.default_action, str):
            raise breach(env, "default_action", f"is {self.default_action!r}; it must be a text")

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        with self._random():
            if self.own_random and seed is not None:
                random.seed(seed)
                np.random.seed(seed % 2**32)
            text, info = self.env.reset(seed=seed, options=options)
            return text, self._info(text, info)

    def step(self, response: str):
        action, valid = choose(response, self.actions, self.default_action)
        with self._random():
            text, reward, terminated, truncated, info = self.env.step(action)
            step_info = self._info(text, info) | executed(response, action, valid)
        step_info["success"] = bool(info.get("success", terminated and reward > 0))
        step_info["metrics"] = info.get("metrics", {})
        reward = float(reward) - (0.0 if valid else self.format_penalty)
        return text, reward, terminated, truncated, step_info

    @contextlib.contextmanager
    def _random(self):
        """Swap in this environment's own random state, and restore the global one at the end."""
        if not self.own_random:
            yield
            return
        outside = random.getstate(), np.random.get_state()
        set_random(self.random_states)
        try:
            yield
        finally:
            self.random_states = random.getstate(), np.random.get_state()
            set_random(outside)

    def _info(self, text: str, info: dict) -> dict:
        return dict(
            system=info["system"] if "system" in info else self._system_prompt(),
            instruction=info.get("instruction", THINK_ACT if self.actions else THINK_SAY),
            kept=info.get("kept", text),
        )

    def _system_prompt(self) -> str:
        prompt = getattr(self.env.unwrapped, "system_prompt", None)
        if prompt is not None:
            text = prompt() if callable(prompt) else prompt
            if not isinstance(text, str):
                raise breach(self.env, "system_prompt", f"gave {text!r}; it must be a text")
            return text
        among = f" Your actions are: {', '.join(self.actions)}." if self.actions else ""
        return f"You act in a text environment, one action per turn.{among}"


class ForeignMessages(ForeignEnv):
    """A user's environment that parses responses by itself; this only isolates its random state."""

    names_actions = False  # only the environment knows which responses are valid

    def step(self, response: str):
        with self._random():
            return self.env.step(response)

    def _info(self, text: str, info: dict) -> dict:
        return info


def set_random(states: tuple) -> None:
    python, numpy = states
    random.setstate(python)
    np.random.set_state(numpy)


def choose(response: str, actions: Sequence[str], default: str) -> tuple[str, bool]:
    """Return the action that a response names and True, or the default and False.

    Case, punctuation, underscores and later lines do not matter. Without `actions` any text is
    valid.
    """
    start = split(response)
    text = response[start if start < len(response) else after_thought(response) :]
    marker = MARKER.match(text)
    text = text[marker.end() if marker else 0 :].strip()
    if not actions:
        return (text, True) if text else (default, False)
    line = text.partition("\n")[0].strip()
    if line in actions:
        return line, True
    named = {plain(action): action for action in reversed(actions)}
    action = named.get(plain(line))
    return (default, False) if action is None else (action, True)
