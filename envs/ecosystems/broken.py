"""Ends a game as a failure where a move of the policy makes its library raise an exception."""

import gymnasium

from envs.errors import fault_of
from envs.outcomes import caused_by_policy


class Breakable(gymnasium.Wrapper):
    """The game of a library. A move that breaks it pays nothing, and the next reset begins another.

    The metric `program_errors` is the share of episodes that ended so.
    """

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        text, self.info = self.env.reset(seed=seed, options=options)
        return text, self.info

    def step(self, action: str):
        try:
            text, reward, terminated, truncated, info = self.env.step(action)
            failed = False
        except Exception as error:
            if not caused_by_policy(error):
                raise
            text, failed = fault_of(error).error, True
            reward, terminated, truncated = 0.0, True, False
            info = self.info | {"kept": text, "success": False, "metrics": {}}
        metrics = info.get("metrics", {}) | {"program_errors": float(failed)}
        self.info = info | {"metrics": metrics}
        return text, reward, terminated, truncated, self.info
