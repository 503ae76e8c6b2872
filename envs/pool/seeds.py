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
        for j in itertools.count():
            # The constant 0 is part of the definition: without it all episodes would change.
            draw = np.random.SeedSequence([self.seed, 0, self.i, j]).generate_state(1)[0]
            yield int(draw) >> 2 << 1  # even and < 2**31


def training_seeds(seed: int, mine: range, group_size: int = 0) -> list[Iterable[int]]:
    """The seeds of each environment of this rank, the same ones for all environments of a group.

    mine: their indices over all ranks
    """
    if group_size < 2:
        return [EpisodeSeeds(seed, i) for i in mine]
    # Iterators show no seed in advance, so an episode that cannot begin is tried again: after a
    # short outage of one environment its group still begins episodes together.
    return [iter(EpisodeSeeds(seed, i // group_size)) for i in mine]


def panel_seeds(episodes: int, n_env: int, mine: range) -> list[Iterator[int]]:
    """One iterator for this rank's environments `mine`: who is free plays the next episode.

    Episode k has seed 2 k + 1 in every run. It is played on the rank of environment k % n_env.
    """
    queue = iter([2 * k + 1 for k in range(episodes) if k % n_env in mine])
    return [queue] * len(mine)
