"""Checks what an environment returns, and describes a violation in one line.

Each check raises BrokenContract. `name` is the method whose result is checked.
`envs.checked` applies the checks.
"""

import math
import reprlib

import gymnasium
import numpy as np

from common.chat import Sampling
from common.plugins import defined_at
from common.template import is_message
from envs.actions import plain
from envs.errors import BrokenContract

RESET = "(observation, info)"
STEP = "(observation, reward, terminated, truncated, info)"


def check_reset(env: gymnasium.Env, answer) -> None:
    check_count(env, "reset", answer, RESET)
    text, info = answer
    check_observation(env, "reset", text)
    _check(isinstance(info, dict), env, "reset", "info =", info, "a dict")


def check_step(env: gymnasium.Env, answer) -> None:
    check_count(env, "step", answer, STEP)
    text, reward, terminated, truncated, info = answer
    check_observation(env, "step", text)
    check_reward(env, "step", reward)
    check_truth(env, "step", "terminated =", terminated)
    check_truth(env, "step", "truncated =", truncated)
    _check(isinstance(info, dict), env, "step", "info =", info, "a dict")
    success, metrics = info.get("success", False), info.get("metrics", {})
    truth = _is_truth(success) or (_is_number(success) and float(success) in (0, 1))
    _check(truth, env, "step", "info['success'] =", success, "True or False")
    numbers = isinstance(metrics, dict) and all(map(_is_number, metrics.values()))
    _check(numbers, env, "step", "info['metrics'] =", metrics, "a dict of numbers")


def check_count(env: gymnasium.Env, name: str, answer, wanted: str) -> None:
    """wanted: the names of the values in the tuple `answer`"""
    n = len(answer) if isinstance(answer, tuple | list) else None
    if n != wanted.count(",") + 1:
        got = reprlib.repr(answer) if n is None else f"{n} value{'s' * (n != 1)}"
        raise breach(env, name, f"returned {got}; it must return {wanted}")


def check_observation(env: gymnasium.Env, name: str, text) -> None:
    good = isinstance(text, str) and text.strip()
    _check(good, env, name, "the observation", text, "a text that is not empty")


def check_reward(env: gymnasium.Env, name: str, reward) -> None:
    good = is_finite(reward)
    _check(good, env, name, "the reward", reward, "a finite number")


def check_truth(env: gymnasium.Env, name: str, what: str, value) -> None:
    """what: introduces `value` in the message, for example "terminated =" """
    _check(_is_truth(value), env, name, what, value, "True or False")


def check_texts(env: gymnasium.Env, name: str, info: dict, keys: tuple[str, ...]) -> None:
    """keys: the texts that `info` must hold"""
    check_keys(env, name, info, keys)
    for key in keys:
        _check(isinstance(info[key], str), env, name, f"info[{key!r}] =", info[key], "a text")


def check_info(env: gymnasium.Env, name: str, info: dict) -> None:
    """Check the required items of `info`, and its chat messages if it has any."""
    check_texts(env, name, info, ("kept", "system", "instruction"))
    check_messages(env, name, info)


def check_messages(env: gymnasium.Env, name: str, info: dict) -> None:
    """Check the items of `info` for chat messages. All of them are optional."""
    template, sampling = info.get("template", {}), info.get("sampling", Sampling())
    _check(isinstance(template, dict), env, name, "info['template'] =", template, "a dict")
    _check(isinstance(sampling, Sampling), env, name, "info['sampling'] =", sampling, "a Sampling")
    messages, reply = info.get("messages", ()), info.get("reply")
    texts = "two texts, role and content"
    good = isinstance(messages, list | tuple) and all(map(is_message, messages))
    _check(good, env, name, "info['messages'] =", messages, f"a list of dicts with {texts}")
    good = reply is None or is_message(reply)
    _check(good, env, name, "info['reply'] =", reply, f"a dict with {texts}")


def check_keys(env: gymnasium.Env, name: str, info: dict, keys: tuple[str, ...]) -> None:
    """keys: the keys that `info` must have"""
    missing = [key for key in keys if key not in info]
    if missing:
        raise breach(env, name, f"returned an info without {', '.join(map(repr, missing))}")


def check_actions(env: gymnasium.Env, actions) -> None:
    """actions: the environment's attribute; a response must name one of them"""
    if not isinstance(actions, list | tuple) or not actions:
        what = f"is {reprlib.repr(actions)}; it must be a list or a tuple of texts"
        raise breach(env, "actions", what)
    named = {}
    for action in actions:
        if not isinstance(action, str) or not action.strip():
            what = f"holds {reprlib.repr(action)}; an action must be a text that is not empty"
            raise breach(env, "actions", what)
        if plain(action) in named:
            both = f"{named[plain(action)]!r} and {action!r}"
            what = f"holds {both}, which read alike: case and punctuation do not count"
            raise breach(env, "actions", what)
        named[plain(action)] = action


def _check(good, env: gymnasium.Env, name: str, what: str, value, wanted: str) -> None:
    if not good:
        value = " ".join(reprlib.repr(value).split())
        raise breach(env, name, f"returned {what} {value}; it must be {wanted}")


def _is_truth(value) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_number(value) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return not isinstance(value, str | bytes)


def is_finite(value) -> bool:
    """Return whether a value is a number that is neither infinite nor nan."""
    return _is_number(value) and math.isfinite(value)


def breach(env: gymnasium.Env, name: str, what: str) -> BrokenContract:
    """Return the error about the method or attribute `name`, with its file and line.

    what: the end of the sentence that begins with the name
    """
    while is_helper(env) or (isinstance(env, gymnasium.Wrapper) and name not in vars(type(env))):
        env = env.env
    location = defined_at(getattr(type(env), name, None)) or defined_at(type(env))
    spec = env.unwrapped.spec  # None, if gymnasium has not made it
    return BrokenContract(f"{location}{spec.id if spec else type(env).__name__}.{name} {what}")


def is_helper(env: gymnasium.Env) -> bool:
    """Return whether it is a wrapper of gymnasium or of this project, not of the user."""
    home = type(env).__module__.partition(".")[0]
    return isinstance(env, gymnasium.Wrapper) and home in ("gymnasium", "envs")
