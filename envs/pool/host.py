"""Holds one environment, in whatever process it runs, and turns its failures into Faults.

`envs.pool.executors` calls an `EnvHost` directly, in a thread, or through `envs.pool.worker`.
"""

import contextlib
from collections.abc import Callable

from envs.checked import checked_act, checked_begin, guarded
from envs.errors import fault_of
from envs.text_env import Observation, Step


class EnvHost:
    """Holds one environment. The first reset makes it. So does the reset after a fault, because a
    failed environment may be in any state."""

    def __init__(self, make: Callable):
        self.make, self.env = make, None
        self.next_seed: int | None = None  # seed of the next episode, until it is prepared

    def call(self, method: str, *args):
        """Return the answer of `reset` or `step`, or a Fault if the environment failed."""
        try:
            return getattr(self, method)(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit, and asyncio's CancelledError
            making = self.env is None
            self.close()
            return fault_of(error, making)

    def reset(self, seed: int, next_seed: int | None = None) -> Observation:
        if self.env is None:
            self.env = guarded(self.make())
        self.next_seed = next_seed
        return checked_begin(self.env, seed)

    def step(self, response: str) -> Step:
        return checked_act(self.env, response)

    def prepare(self) -> None:
        """Let an idle environment do the slow part of its next reset in advance."""
        seed, self.next_seed = self.next_seed, None
        if seed is not None and hasattr(self.env, "prepare"):
            with contextlib.suppress(Exception, SystemExit):  # the reset will raise it again
                self.env.prepare(seed)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self.env is not None:
                self.env.close()
        self.env = None
