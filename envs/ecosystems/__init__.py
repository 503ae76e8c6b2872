"""Environments of other libraries by name, as in `--env-name textarena:GuessTheNumber-v0`.

Each library has an adapter in a file of this folder: a gymnasium environment with text in and text
out, imported on demand. `envs.foreign` does the rest as for a user's own environments: parsing, the
format penalty, and random numbers of the environment's own. docs/ecosystems.md tells what each
library needs.
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
from envs.foreign import THINK_SAY, TIME_LIMIT, ForeignEnv, set_random

TEXT = Text(65536)


def make_adapted(
    name: str,
    format_penalty: float = 0.1,
    max_episode_steps: int | None = None,
    own_random: bool = True,
) -> ForeignEnv:
    """Make the environment "library:name".

    max_episode_steps: number of turns after which an episode is truncated; default: the adapter's
    own_random: see `ForeignEnv`
    ValueError: the library is not installed, it has no such environment, or it cannot make it
    """
    _check_installed(name)
    outside = random.getstate(), np.random.get_state()
    try:
        env = _adapter(name)(name.partition(":")[2])
    except ModuleNotFoundError as error:
        raise UserError(f"{name} needs the package {error.name}, please install it") from error
    except Refused as error:
        raise UserError(f"{name}: {error}") from error
    except Exception as error:  # a library's constructor may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", 300)
        raise UserError(f"environment {name!r} cannot be made: {reason}") from error
    finally:
        set_random(outside)
    steps = max_episode_steps or getattr(env, "time_limit", TIME_LIMIT)
    return ForeignEnv(TimeLimit(env, steps), format_penalty, own_random)


class Refused(ValueError):
    """An adapter cannot make an environment; the line says why and what can be made."""


def check_name(name: str, known: Iterable[str], what: str) -> None:
    """Refused: `name` is not among the known ones. what: what they are, as in "a game"."""
    known = list(known)
    if name not in known:
        near = ", ".join(difflib.get_close_matches(name, known, 5, 0))
        raise Refused(f"the library has no such {what}; nearest first: {near}{MINE}")


def answer_with(what: str) -> str:
    """Return the instruction that asks for reasoning and then for `what`."""
    return THINK_SAY.replace("what you do", what)


MINE = " (a module of your own must have another name than the library)"


def _adapter(name: str) -> type:
    module, _, adapter = LIBRARIES[library(name)][0].partition(":")
    return getattr(importlib.import_module(module), adapter)


def _check_installed(name: str) -> None:
    wanted = LIBRARIES[library(name)][1]
    package = wanted.partition("==")[0]
    try:
        metadata.version(package)  # an import might find a module of the user's by that name
    except metadata.PackageNotFoundError as error:
        install = f"pip install {wanted}, see docs/ecosystems.md{MINE}"
        raise UserError(f"{name} needs the package {package}: {install}") from error
