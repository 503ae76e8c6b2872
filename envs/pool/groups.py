"""Seeds that are drawn one by one: those of groups, which begin their episodes from equal seeds."""

from collections.abc import Iterable, Iterator

from envs.errors import EnvError
from envs.pool.serial import EpisodeSeeds, training_seeds
from envs.text_env import Step


class DrawnSeeds:
    """The seeds of an environment, as those of a group.

    They cannot be looked up in advance, so an episode that cannot begin is tried again with the
    same seed: a short outage of one environment does not part it from its group.

    k: how often the current episode has been replaced by one with another seed
    """

    def __init__(self, seeds: EpisodeSeeds):
        self.seeds, self.j, self.k = seeds, -1, 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.j, self.k = self.j + 1, 0
        return self.seeds.draw(self.j)

    def after(self, seed: int, ended: Step | EnvError) -> int:
        """Return the seed of the episode after the one that has ended. seed: of that one"""
        return next(self)

    def substitute(self) -> int:
        """Return another seed for the current episode, which cannot begin with the first one.

        Were the episode skipped instead, this environment would never again begin an episode
        together with its group.
        """
        self.k += 1
        return self.seeds.draw(self.j, self.k)


def group_seeds(seed: int, share: range, group_size: int) -> list[Iterable[int]]:
    """Return the training seeds of each environment in `share`, this rank's indices over all ranks.

    group_size: neighbours that share their seeds; below 2 every environment has its own
    """
    if group_size < 2:
        return training_seeds(seed, share)
    return [DrawnSeeds(EpisodeSeeds(seed, i // group_size)) for i in share]
