"""A pool of environments in this process, and the seeds of their episodes.

`send` gives an environment a response, and `poll` returns the turns that are complete. When an
episode ends the next one begins at once, and its first observation comes with the last `Step`.
An error of an environment ends the program: `envs.pool.resilient` survives errors, uses worker
processes and goes on where a stopped run was.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from envs.text_env import Observation, Step, act, begin


@dataclass(frozen=True)
class EpisodeSeeds:
    """Endless seeds of the training episodes of environment `i`, an index over all ranks."""

    seed: int
    i: int

    def __iter__(self) -> Iterator[int]:
        return map(self.draw, itertools.count())

    def draw(self, *key: int) -> int:
        """Return the seed of the episode of this key, usually its number: even and below 2**31."""
        # The constant 0 is part of the definition: without it all episodes would change.
        [state] = np.random.SeedSequence([self.seed, 0, self.i, *key]).generate_state(1)
        return int(state) >> 2 << 1


def training_seeds(seed: int, share: range) -> list[Iterable[int]]:
    """Return the seeds of each environment in `share`, this rank's indices over all ranks."""
    return [EpisodeSeeds(seed, i) for i in share]


class SerialPool:
    """Environments made by `make()` that take turns in this process.

    seeds: for each environment an iterable; its k-th episode is reset with the k-th of these
    """

    def __init__(self, make: Callable, seeds: list[Iterable[int]]):
        self.n_env = len(seeds)
        self.envs = [make() for _ in seeds]
        self.seeds = [iter(each) for each in seeds]
        self.episodes = [-1] * self.n_env  # number of the episode of each environment, from 0
        self.seed: list[int | None] = [None] * self.n_env  # of that episode; None: no seed is left
        self.turns = [0] * self.n_env  # turns taken in that episode
        self.observations: list[Observation | None] = [None] * self.n_env  # the current ones
        self.steps: dict[int, Step] = {}  # complete turns that `poll` has not returned yet

    def reset(self) -> list[Observation | None]:
        """Begin everywhere; return the first observations, None where there is no episode left."""
        return [self._begin(i) for i in range(self.n_env)]

    def send(self, i: int, response: str, truncated: bool = False) -> None:
        """Let environment i take a turn.

        truncated: whether the response limit cut the response off; the action itself says it all
        """
        assert self.seed[i] is not None, f"environment {i} has no episode to play"
        assert i not in self.steps, f"environment {i} is still busy with a turn"
        self.turns[i] += 1
        step = act(self.envs[i], response)
        step = numbered(step, self.episodes[i], self.seed[i], self.turns[i], self.observations[i])
        self.observations[i] = step.observation
        self.steps[i] = replace(step, first=self._begin(i)) if step.done else step

    def poll(self, wait: bool = True) -> list[tuple[int, Step]]:
        """Return the complete turns as (i, Step) in the order of i. Here none is waited for."""
        steps, self.steps = self.steps, {}
        return sorted(steps.items())

    def position(self, i: int) -> tuple[int | None, int]:
        """Return the seed of the episode of environment i and the number of turns taken in it."""
        return self.seed[i], self.turns[i]

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _begin(self, i: int) -> Observation | None:
        self.episodes[i], self.turns[i] = self.episodes[i] + 1, 0
        self.seed[i] = next(self.seeds[i], None)  # evaluation seeds come to an end
        seed = self.seed[i]
        self.observations[i] = None if seed is None else begin(self.envs[i], seed)
        return self.observations[i]


def numbered(step: Step, episode: int, seed: int, number: int, previous: Observation) -> Step:
    """Add to a Step which turn it is, and which observation its response answers."""
    return replace(
        step, episode=episode, seed=seed, number=number, previous_text=previous.text,
        # With tools the same text may stand beside other messages: that is another state.
        previous_digest=digest(repr((previous.text, previous.messages))),
    )  # fmt: skip


def digest(text: str) -> str:
    """Return a short hash, by which observations are compared."""
    # An environment may return half of a surrogate pair, which UTF-8 does not encode.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
