"""One environment, wherever it lives: its answers are checked, its failures become Faults.

`envs.pool.vec_env` calls a `Seat` in its own process or through `envs.pool.worker`.
"""

import contextlib
import functools
import math
import traceback
from collections.abc import Callable

from envs.text_env import Observation, Step


class EnvError(RuntimeError):
    """The run cannot go on: environments fail too often, or cannot be made at all."""


class Fault(Exception):
    """An environment raised an exception, gave a wrong answer, hung, or killed its worker."""

    def __init__(self, error: str, traceback: str = ""):
        super().__init__(error, traceback)
        self.error, self.traceback = error, traceback


class Seat:
    """Holds one environment, and makes another after a fault: the old one's state is unknown."""

    def __init__(self, make: Callable):
        self.make, self.env, self.failed = make, make(), False
        self.following: int | None = None  # seed of the next episode, until it is prepared

    def call(self, method: str, *args):
        """Returns the method's answer, or a Fault if the environment failed."""
        try:
            return getattr(self, method)(*args)
        except (Exception, SystemExit) as error:
            self.failed = True
            return Fault(repr(error)[:1000], traceback.format_exc())

    def reset(self, seed: int, following: int | None = None) -> Observation:
        if self.failed:
            self.close()
            self.env, self.failed = self.make(), False
        self.following = following
        return _observation(*self.env.reset(seed=seed))

    def step(self, response: str) -> Step:
        text, reward, terminated, truncated, info = self.env.step(response)
        if not math.isfinite(reward):
            raise ValueError(f"a reward must be a finite number, got {reward!r}")
        return Step(
            response=response,
            said=_text(info, "said"),
            action=_text(info, "action"),
            valid=bool(info["valid"]),
            action_at=int(info["action_at"]),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=bool(info["success"]),
            observation=_observation(text, info),
            metrics={str(name): float(x) for name, x in info.get("metrics", {}).items()},
        )

    def prepare(self) -> None:
        """Lets an idle environment do the costly part of its next reset in advance."""
        seed, self.following = self.following, None
        if seed is not None and hasattr(self.env, "prepare"):
            with contextlib.suppress(Exception, SystemExit):  # the reset will raise it again
                self.env.prepare(seed)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.env.close()


def _observation(text: str, info: dict) -> Observation:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"an observation must be a text that is not empty, got {text!r}")
    return Observation(text, *(_text(info, name) for name in ("kept", "system", "instruction")))


def _text(info: dict, name: str) -> str:
    if not isinstance(info[name], str):
        raise ValueError(f"info[{name!r}] must be a text, got {info[name]!r}")
    return info[name]


def name_of(make: Callable) -> str:
    """How error messages call the environments of `make`, usually partial(make_env, name)."""
    if isinstance(make, functools.partial):
        named = make.args and isinstance(make.args[0], str)
        return make.args[0] if named else name_of(make.func)
    return getattr(make, "__name__", repr(make))
