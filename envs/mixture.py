"""One policy for many tasks: `--env-name babyai-goto,babyai-pickup`, or a pattern such as `baba-*`.

A mixture is a list of names of one family, with commas between them. `*` stands for any part of a
name, and `babyai-goto=2` is played twice as often as a name without a weight. The seed of an
episode alone decides its task: the members of a group play the same one, and a replay or a resumed
run needs no record of it. `babyai-*=weak` chooses seeds by success (`envs.pool.weak`). The success
of each task is a figure of its own.
"""

import fnmatch
from collections.abc import Callable

import gymnasium
import numpy as np

from common.plugins import UserError
from envs import family, names
from envs.checked import guarded

SUCCESS = "success/"  # followed by the name of a task: a figure of its episodes
WEAK = "weak"  # in the place of a weight


def tasks_of(name: str) -> dict[str, float]:
    """Return the tasks that the name of an environment stands for, and their weights.

    UserError: one of several is unknown or no task of the same family, or a weight is not positive
    """
    if not {",", "*"} & {*name}:
        return {name: 1.0}
    found = {}
    for part in name.split(","):
        pattern, equals, weight = part.strip().partition("=")
        weight = weight_of(part, weight) if equals and weight != WEAK else 1.0
        chosen = fnmatch.filter(names(), pattern) if "*" in pattern else [pattern]
        if not chosen:
            raise UserError(f"--env-name: no environment is named like {pattern!r}")
        for task in chosen:
            if task in found:
                raise UserError(f"--env-name {name}: {task} is named twice")
            found[task] = weight
    families = {family(task): task for task in found}
    if len(families) > 1 or "agent" in families:
        wrong = "agents cannot be mixed" if "agent" in families else " and ".join(families.values())
        raise UserError(f"--env-name {name}: {wrong}; several tasks must be of one family")
    return found


def weak_tasks(name: str) -> set[str]:
    """Return the tasks of a mixture that are marked with `=weak`."""
    parts = [part.strip().partition("=") for part in name.split(",")]
    patterns = [pattern for pattern, _, weight in parts if weight == WEAK]
    return {task for task in tasks_of(name) if any(fnmatch.fnmatch(task, p) for p in patterns)}


def draw_task(tasks: dict[str, float], seed: int) -> str:
    """Return the task of the episode with this seed. tasks: what `tasks_of` returns"""
    shares = np.array([*tasks.values()]) / sum(tasks.values())
    # A stream of its own: the environment draws its world from that of the plain seed.
    return np.random.default_rng([seed, 1]).choice([*tasks], p=shares).item()


def weight_of(part: str, weight: str) -> float:
    """Return the weight in a part `task=weight` of a name. UserError: it is not above 0"""
    try:
        value = float(weight)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UserError(f"--env-name: the weight in {part!r} must be a number above 0, or {WEAK}")
    return value


def one_of(name: str) -> str:
    """Return a task of a mixture, whose family is that of all; of another name, the name itself."""
    return next(iter(tasks_of(name)))


class Mixture(gymnasium.Env):
    """Plays the task that the seed of each episode draws.

    tasks: what `tasks_of` returns
    make: makes the environment of a task, when it is first played
    """

    def __init__(self, tasks: dict[str, float], make: Callable[[str], gymnasium.Env]):
        self.tasks, self.make = tasks, make
        self.made: dict[str, gymnasium.Env] = {}
        self.task = next(iter(tasks))

    @property
    def env(self) -> gymnasium.Env:
        """The environment of the task that is played."""
        if self.task not in self.made:
            self.made[self.task] = guarded(self.make(self.task))
        return self.made[self.task]

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        self.task = draw_task(self.tasks, seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, response: str):
        text, reward, terminated, truncated, info = self.env.step(response)
        if terminated or truncated:
            metrics = info.get("metrics", {}) | {SUCCESS + self.task: float(info["success"])}
            info = info | {"metrics": metrics}
        return text, reward, terminated, truncated, info

    def render(self):
        return self.env.render()

    def close(self) -> None:
        for env in self.made.values():
            env.close()
