"""Makes a user's environment from "module:EnvId", and checks that it has texts and a time limit.

`envs.foreign` adapts it to our contract.
"""

import functools
from textwrap import shorten

import gymnasium
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Text
from gymnasium.wrappers import TimeLimit

from common.plugins import UserError, defined_at, find_module, location_of
from envs import TOOLS, library
from envs.checked import with_checks
from envs.foreign import ForeignEnv, ForeignMessages

TIME_LIMIT = 1000  # turns, by default: an endless episode would hang an evaluation
FORM = "the form is module:EnvId, as in my_envs:MyEnv-v0"


def make_foreign(
    name: str,
    format_penalty: float = 0.1,
    max_episode_steps: int | None = None,
    own_random: bool = True,
):
    """Import the module of "module:EnvId" and make the environment that it registers.

    max_episode_steps: number of turns after which an episode is truncated; default: the
        registration's, or 1,000 if it has none
    own_random: see `ForeignEnv`
    ValueError: it cannot be imported or made, or its spaces or actions are wrong; the message names
        the user's file
    """
    if name.startswith(TOOLS):
        from envs.tools.classes import make_tools

        return wrap(make_tools(name), max_episode_steps, format_penalty, own_random)
    _, env_id = find_module("environment", name, FORM)
    try:
        # gymnasium's own checker would warn about each character outside Text's default charset.
        env = gymnasium.make(env_id, max_episode_steps=max_episode_steps, disable_env_checker=True)
    except (Exception, SystemExit) as error:  # a user's constructor may raise anything
        kind = "" if isinstance(error, gymnasium.error.Error) else f"{type(error).__name__}: "
        reason = shorten(f"{kind}{error}", 300)
        location = location_of(error.__cause__ or error)  # gymnasium adds words to a TypeError
        line = f"{location}environment {name!r} cannot be made: {reason}"
        raise UserError(line) from error
    for attribute in ("observation_space", "action_space"):
        space = getattr(env, attribute, None)
        if not isinstance(space, Text):
            raise UserError(
                f"{defined_at(type(env.unwrapped))}environment {name!r} has a space "
                f"{shorten(str(space), 80)}; observations and actions must both be "
                "gymnasium.spaces.Text"
            )
    limit = env.spec.max_episode_steps
    if limit is None and not hasattr(env.unwrapped, "max_turns"):
        env = TimeLimit(env, TIME_LIMIT)
    return wrap(env, limit, format_penalty, own_random)


def wrap(env: gymnasium.Env, limit: int | None, format_penalty: float, own_random: bool):
    """Adapt a user's environment. limit: the time limit, if the user set one"""
    inner, env = env.unwrapped, with_checks(env)
    if not getattr(inner, "speaks_messages", False):
        return ForeignEnv(env, format_penalty, own_random)
    inner.format_penalty = format_penalty  # set here, as __init__ need not have these arguments
    if limit is not None:
        inner.max_turns = limit
    return ForeignMessages(env, format_penalty, own_random)


@functools.cache
def announce_time_limit(name: str, max_episode_steps: int | None) -> None:
    """Print a line, once in a process, if "module:EnvId" has no time limit of the user's."""
    ours = name.startswith(TOOLS) or library(name)
    if ":" not in name or ours or max_episode_steps is not None:
        return
    _, env_id = find_module("environment", name, FORM)
    spec = gymnasium.registry.get(env_id)
    if spec and spec.max_episode_steps is None and not _has_limit(spec.entry_point):
        print(
            f"{name} is registered without max_episode_steps: its episodes end after {TIME_LIMIT} "
            "turns, unless --max-episode-steps says otherwise"
        )


def _has_limit(maker) -> bool:
    """Return whether a registered class limits its turns by itself, as `ToolEnv` does."""
    try:
        return hasattr(load_env_creator(maker) if isinstance(maker, str) else maker, "max_turns")
    except Exception:  # `make_foreign` will report it
        return True
