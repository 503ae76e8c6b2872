"""Seeds of episodes. Training seeds are even and panel seeds are odd, so the two never meet."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EpisodeSeeds:
    """Endless training seeds of environment or group `i`, whose index counts over all ranks."""

    seed: int
    i: int

    def __iter__(self) -> Iterator[int]:
        return map(self.draw, itertools.count())

    def draw(self, *place: int) -> int:
        """Return the seed of episode j or, of (j, k), of the k-th one that takes its place."""
        # The constant 0 is part of the definition: without it all episodes would change.
        [state] = np.random.SeedSequence([self.seed, 0, self.i, *place]).generate_state(1)
        return int(state) >> 2 << 1  # even and < 2**31


class GroupSeeds:
    """The seeds of a group for one of its environments. It shows none in advance, so an episode
    that cannot begin is tried again: a short outage of one environment changes nothing."""

    def __init__(self, seeds: EpisodeSeeds):
        self.seeds, self.j, self.k = seeds, -1, 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.j, self.k = self.j + 1, 0
        return self.seeds.draw(self.j)

    def instead(self) -> int:
        """Return a seed in the place of the last one. Had that been left out, this environment
        would never again begin an episode together with its group."""
        self.k += 1
        return self.seeds.draw(self.j, self.k)


def training_seeds(seed: int, mine: range, group_size: int = 0) -> list[Iterable[int]]:
    """The seeds of each environment of this rank, the same ones for all environments of a group.

    mine: their indices over all ranks
    """
    if group_size < 2:
        return [EpisodeSeeds(seed, i) for i in mine]
    return [GroupSeeds(EpisodeSeeds(seed, i // group_size)) for i in mine]


def panel_seeds(episodes: int, n_env: int, mine: range) -> list[Iterator[int]]:
    """One iterator for this rank's environments `mine`: who is free plays the next episode.

    Episode k has seed 2 k + 1 in every run. It is played on the rank of environment k % n_env.
    """
    queue = iter([2 * k + 1 for k in range(episodes) if k % n_env in mine])
    return [queue] * len(mine)
