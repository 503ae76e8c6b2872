"""The seeds of the evaluation episodes, which all runs play."""

from collections.abc import Iterator


def all_evaluation_seeds(episodes: int) -> range:
    """Return the seeds of the evaluation episodes in every run: 2 k + 1 of episode k. Training
    seeds are even, so the two never meet."""
    return range(1, 2 * episodes, 2)


def evaluation_seeds(episodes: int, n_env: int, share: range) -> list[Iterator[int]]:
    """Return one iterator for all environments of this rank: whichever is free takes the next seed.

    Episode k is played on the rank that has environment k % n_env.
    """
    queue = iter([s for k, s in enumerate(all_evaluation_seeds(episodes)) if k % n_env in share])
    return [queue] * len(share)  # one iterator for all: each seed is taken once
