"""Any gymnasium environment whose observations and actions are Text, brought under the contract.

The environment may say more about itself. Its `info` may hold "system" (the system message),
"kept", "instruction", "success" and "metrics". Its attributes may be `actions` (strings, one of
which a response must name), `default_action` (runs in place of an invalid one) and `system_prompt`
(a string or a function). Without `actions`, whatever follows the last ACTION marker is the action.
"""

import re
from collections.abc import Sequence
from textwrap import shorten

import gymnasium
from gymnasium.spaces import Text

from envs.actions import WORD, split
from envs.text_env import THINK_ACT, executed
from storage.named import find_module

THINK_SAY = THINK_ACT.replace("One valid action from the allowed set", "what you do")
MARKER = re.compile(r"(?i:action)[\s*_`]{0,3}:?")


def make_foreign(name: str, format_penalty: float = 0.1, max_episode_steps: int | None = None):
    """Import the module of "module:EnvId" and make the environment that it registers.

    ValueError: it cannot be imported or made, or its spaces are not Text
    """
    form = "the form is module:EnvId, as in my_envs:MyEnv-v0"
    _, env_id = find_module("environment", name, form)
    try:
        # gymnasium's own checker would warn of each character outside Text's default charset
        env = gymnasium.make(env_id, max_episode_steps=max_episode_steps, disable_env_checker=True)
    except (ImportError, gymnasium.error.Error) as error:
        reason = shorten(str(error), 300)
        raise ValueError(f"environment {name!r} cannot be made: {reason}") from error
    for space in (env.observation_space, env.action_space):
        if not isinstance(space, Text):
            raise ValueError(
                f"environment {name!r} has a space {shorten(str(space), 80)}; "
                "observations and actions must both be gymnasium.spaces.Text"
            )
    return ForeignEnv(env, format_penalty)


class ForeignEnv(gymnasium.Wrapper):
    """Adds what `envs.text_env.TextEnv` gives: parsing, the format penalty, info."""

    def __init__(self, env: gymnasium.Env, format_penalty: float = 0.1):
        super().__init__(env)
        self.format_penalty = format_penalty
        self.actions = tuple(getattr(env.unwrapped, "actions", ()))
        first = self.actions[0] if self.actions else ""
        self.default_action = getattr(env.unwrapped, "default_action", first)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        text, info = self.env.reset(seed=seed, options=options)
        return text, self._info(text, info)

    def step(self, response: str):
        action, valid = choose(response, self.actions, self.default_action)
        text, reward, terminated, truncated, info = self.env.step(action)
        ours = self._info(text, info) | executed(response, action, valid)
        ours["success"] = bool(info.get("success", terminated and reward > 0))
        if terminated or truncated:
            ours["metrics"] = info.get("metrics", {})
        reward = float(reward) - (0.0 if valid else self.format_penalty)
        return text, reward, terminated, truncated, ours

    def _info(self, text: str, info: dict) -> dict:
        return dict(
            system=info["system"] if "system" in info else self._system_prompt(),
            instruction=info.get("instruction", THINK_ACT if self.actions else THINK_SAY),
            kept=info.get("kept", text),
        )

    def _system_prompt(self) -> str:
        prompt = getattr(self.env.unwrapped, "system_prompt", None)
        if prompt is not None:
            return prompt() if callable(prompt) else prompt
        among = f" Your actions are: {', '.join(self.actions)}." if self.actions else ""
        return f"You act in a text environment, one action per turn.{among}"


def choose(response: str, actions: Sequence[str], default: str) -> tuple[str, bool]:
    """Return the action that a response names and True, or the default and False.

    Case, punctuation, underscores and later lines do not matter. Without `actions` any text does.
    """
    start = split(response)
    said = MARKER.sub("", response[start:], count=1) if start < len(response) else response
    said = said.strip()
    if not actions:
        return (said, True) if said else (default, False)
    line = said.partition("\n")[0].strip()
    if line in actions:
        return line, True
    named = {_plain(action): action for action in reversed(actions)}
    action = named.get(_plain(line))
    return (default, False) if action is None else (action, True)


def _plain(text: str) -> str:
    return " ".join(WORD.findall(text.lower())) or text
