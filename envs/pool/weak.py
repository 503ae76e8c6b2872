"""Seeds that follow success: tasks marked with `=weak` are played again after a failure.

After a failed episode of such a task an environment plays another one of the same task with
probability AGAIN. Otherwise, and after a success, its seed draws the task by the weights. So a task
of success p comes 1 / (1 - AGAIN (1 - p)) times as often as its weight says: up to four times. No
success is counted or averaged: what an environment plays follows from its own last episode, so runs
with equal seeds are equal, and a saved run needs only the seed of each episode to go on.
"""

from collections.abc import Iterable

import numpy as np

from envs.errors import EnvError
from envs.mixture import draw_task, tasks_of, weak_tasks
from envs.pool.groups import DrawnSeeds, group_seeds
from envs.pool.serial import EpisodeSeeds
from envs.text_env import Step

AGAIN = 0.75


class WeakSeeds(DrawnSeeds):
    """The seeds of an environment that plays a mixture. tasks, weak: what `tasks_of` and
    `weak_tasks` return"""

    def __init__(self, seeds: EpisodeSeeds, tasks: dict[str, float], weak: set[str]):
        super().__init__(seeds)
        self.tasks, self.weak = tasks, weak

    def after(self, seed: int, ended: Step | EnvError) -> int:
        task, seed = draw_task(self.tasks, seed), next(self)
        failed = isinstance(ended, Step) and not (ended.success or ended.fault)
        if task in self.weak and failed and np.random.default_rng([seed, 2]).random() < AGAIN:
            while draw_task(self.tasks, seed) != task:
                seed = self.substitute()
        return seed


def episode_seeds(name: str, seed: int, share: range, group_size: int) -> list[Iterable[int]]:
    """Return what `group_seeds` does for the environment `name`, and after failures other seeds."""
    if weak := weak_tasks(name):
        tasks = tasks_of(name)
        return [WeakSeeds(EpisodeSeeds(seed, i), tasks, weak) for i in share]
    return group_seeds(seed, share, group_size)
