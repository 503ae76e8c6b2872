"""Environments of other libraries by name, as in `--env-name textarena:GuessTheNumber-v0`.

Each library has an adapter in a file of this folder: a gymnasium environment with text in and text
out, imported on demand. As for a user's own environments, `envs.foreign` adds parsing, the format
penalty and a separate random state. docs/ecosystems.md lists what each library needs.
"""

import difflib
import importlib
import random
from collections.abc import Iterable
from importlib import metadata
from textwrap import shorten

import numpy as np
from gymnasium.spaces import Text
from gymnasium.wrappers import TimeLimit

from common.plugins import UserError
from envs import LIBRARIES, library
from envs.ecosystems.broken import Breakable
from envs.foreign import THINK_SAY, ForeignEnv, set_random
from envs.registered import TIME_LIMIT

TEXT = Text(65536)


def make_adapted(
    name: str,
    format_penalty: float = 0.1,
    max_episode_steps: int | None = None,
    own_random: bool = True,
) -> ForeignEnv:
    """Make the environment "library:name".

    max_episode_steps: turns after which an episode is truncated; default: the adapter's own
    own_random: see `ForeignEnv`
    UserError: the library is not installed, or it cannot make such an environment
    """
    _check_installed(name)
    random_state = random.getstate(), np.random.get_state()
    try:
        env = _adapter(name)(name.partition(":")[2])
    except ModuleNotFoundError as error:
        raise UserError(f"{name} needs the package {error.name}, please install it") from error
    except CannotMake as error:
        raise UserError(f"{name}: {error}") from error
    except Exception as error:  # a library's constructor may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", 300)
        raise UserError(f"environment {name!r} cannot be made: {reason}") from error
    finally:
        set_random(random_state)
    steps = max_episode_steps or getattr(env, "time_limit", TIME_LIMIT)
    return ForeignEnv(TimeLimit(Breakable(env), steps), format_penalty, own_random)


class CannotMake(ValueError):
    """An adapter cannot make an environment; the message names the reason and the choices."""


def check_name(name: str, known: Iterable[str], kind: str) -> None:
    """CannotMake: `name` is not one of `known`. kind: for the message, such as "game"."""
    known = list(known)
    if name not in known:
        near = ", ".join(difflib.get_close_matches(name, known, 5, 0))
        raise CannotMake(f"the library has no such {kind}; nearest first: {near}{NAME_HINT}")


def answer_with(answer: str) -> str:
    """Return the instruction that asks for reasoning and then for an answer."""
    return THINK_SAY.replace("what you do", answer)


NAME_HINT = " (a module of your own must have another name than the library)"


def _adapter(name: str) -> type:
    module, _, adapter = LIBRARIES[library(name)][0].partition(":")
    return getattr(importlib.import_module(module), adapter)


def _check_installed(name: str) -> None:
    requirement = LIBRARIES[library(name)][1]
    package = requirement.partition("==")[0]
    try:
        metadata.version(package)  # an import might find a user's module of that name
    except metadata.PackageNotFoundError as error:
        install = f"pip install {requirement}, see docs/ecosystems.md{NAME_HINT}"
        raise UserError(f"{name} needs the package {package}: {install}") from error
