"""Checks what an environment returns, and describes a violation in one line.

A user's environment is wrapped in `Checked`, which checks its return values before gymnasium's
wrappers unpack them. `envs.pool.host` applies the same checks to every environment.
"""

import functools
import math
import reprlib
from collections.abc import Callable

import gymnasium
import numpy as np

from common.chat import Sampling
from common.plugins import defined_at
from common.template import is_message
from envs.actions import plain
from envs.errors import BrokenContract
from envs.text_env import Observation, Step, TextEnv, observation_of, step_of

RESET = "(observation, info)"
STEP = "(observation, reward, terminated, truncated, info)"


class Checked(gymnasium.Wrapper):
    """Checks what a user's environment returns. This is the innermost wrapper."""

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        answer = self._call("reset", seed=seed, options=options)
        check_reset(self.env, answer)
        return answer

    def step(self, action: str):
        answer = self._call("step", action)
        check_step(self.env, answer)
        return answer

    def _call(self, name: str, *args, **options):
        try:
            return getattr(self.env, name)(*args, **options)
        except TypeError as error:
            if error.__traceback__.tb_next:  # raised inside the method: the call itself was fine
                raise
            raise breach(self.env, name, f"cannot be called: {error}") from error


def with_checks(env: gymnasium.Env) -> gymnasium.Env:
    """Put `Checked` around a user's environment, inside the wrappers that gymnasium added."""
    if not _is_helper(env):
        return Checked(env)
    env.env = with_checks(env.env)
    return env


def breach(env: gymnasium.Env, name: str, what: str) -> BrokenContract:
    """Return the error about the method or attribute `name`, with its file and line.

    what: the end of the sentence that begins with the name
    """
    while _is_helper(env) or (isinstance(env, gymnasium.Wrapper) and name not in vars(type(env))):
        env = env.env
    location = defined_at(getattr(type(env), name, None)) or defined_at(type(env))
    spec = env.unwrapped.spec  # None, if gymnasium has not made it
    return BrokenContract(f"{location}{spec.id if spec else type(env).__name__}.{name} {what}")


def _is_helper(env: gymnasium.Env) -> bool:
    """Return whether it is a wrapper of gymnasium or of this project, not of the user."""
    home = type(env).__module__.partition(".")[0]
    return isinstance(env, gymnasium.Wrapper) and home in ("gymnasium", "envs")


def guarded(env: gymnasium.Env) -> gymnasium.Env:
    """Check an environment's actions, and let a `TextEnv` check the results of its own methods.

    `checked_begin` and `checked_act` check the rest. BrokenContract: its actions are wrong
    """
    inner = env.unwrapped
    if isinstance(inner, TextEnv):
        check_actions(inner, inner.actions)
        inner._start = functools.partial(_checked_start, inner, inner._start)
        inner._act = functools.partial(_checked_act, inner, inner._act)
    return env


def _checked_start(env: gymnasium.Env, start: Callable) -> str:
    text = start()
    check_observation(env, "_start", text)
    return text


def _checked_act(env: gymnasium.Env, act: Callable, action: str) -> tuple:
    answer = act(action)
    check_count(env, "_act", answer, "(observation text, reward, terminated, success)")
    check_reward(env, "_act", answer[1])
    return answer


def checked_begin(env: gymnasium.Env, seed: int) -> Observation:
    """Reset an environment and check the result. BrokenContract: it is wrong"""
    answer = env.reset(seed=seed)
    check_reset(env, answer)
    check_info(env, "reset", answer[1])
    return observation_of(*answer)


def checked_act(env: gymnasium.Env, response: str) -> Step:
    """Take a turn and check the result. BrokenContract: it is wrong"""
    answer = env.step(response)
    check_step(env, answer)
    info = answer[-1]
    check_texts(env, "step", info, ("kept_response", "action"))
    check_keys(env, "step", info, ("valid", "action_at", "success"))
    check_info(env, "step", info)
    return step_of(response, *answer)


# Each check raises BrokenContract. `name` is the method whose result is checked.


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
    good = _is_number(reward) and math.isfinite(reward)
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
