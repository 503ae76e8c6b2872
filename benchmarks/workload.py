"""A synthetic workload: responses of given lengths, and environments that take time to answer.

Lengths and times are drawn from (repetition, slot, count), so both sides of a comparison get the
same ones. Prompts do not depend on the responses.
"""

import math
import time
from collections import Counter

import gymnasium
import numpy as np

from common.wrapper import Wrapper
from envs.pool.resilient import ResilientPool
from envs.pool.serial import training_seeds
from ppo.engines.lockstep import TransformersEngine

RESPONSE_LIMIT = 512
SIGMA = math.log(400 / 60) / 2.326  # of a lognormal whose 99th percentile is 400 / 60 medians
TOKENS, SECONDS = 60, 0.3  # medians: tokens of a response, seconds of a slow environment's turn
MEAN = round(TOKENS * math.exp(SIGMA**2 / 2))  # response length of the same mean
VOCABULARY = [
    "you", "see", "a", "red", "key", "blue", "door", "green", "ball", "grey", "box", "steps",
    "forward", "left", "right", "wall",
]  # fmt: skip


def heavy_tailed(median: float, seed: tuple[int, ...]) -> float:
    return float(np.random.default_rng(seed).lognormal(math.log(median), SIGMA))


class GivenLengths(Wrapper):
    """An engine whose responses have given lengths.

    tokens: length of every response; 0: heavy-tailed lengths
    lockstep: whether a step completes all responses in progress
    """

    def __init__(self, engine, tokens: int, lockstep: bool, repetition: int):
        super().__init__(engine)
        self.tokens, self.lockstep, self.repetition = tokens, lockstep, repetition
        self.count = Counter()  # slot -> responses so far

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.count[slot] += 1
        self.inner.response_limit = self.length(slot, self.count[slot])
        self.inner.submit(slot, prompt, seed)

    def length(self, slot: int, count: int) -> int:
        drawn = heavy_tailed(TOKENS, (self.repetition, slot, count, 1))
        return self.tokens or min(max(round(drawn), 1), RESPONSE_LIMIT)

    def step(self):
        done = self.inner.step()
        while self.lockstep and not self.inner.idle:
            done += self.inner.step()
        return done


class SlowEnvs(ResilientPool):
    """Environments that take time to answer, as if each had a process of its own.

    median: seconds of a turn, heavy-tailed; 0: none
    lockstep: whether `poll` waits for all busy environments
    """

    def __init__(self, n_env: int, repetition: int, median: float, lockstep: bool):
        super().__init__(RandomText, training_seeds(repetition, range(n_env)))
        self.repetition, self.median, self.lockstep = repetition, median, lockstep
        self.count = Counter()  # environment -> turns so far
        self.ready_at, self.steps = {}, {}  # environment -> time of its answer, and its Step

    def send(self, i: int, response: str, truncated: bool = False) -> None:
        super().send(i, response, truncated)
        self.steps |= dict(super().poll())
        self.count[i] += 1
        seed = (self.repetition, i, self.count[i], 2)
        delay = heavy_tailed(self.median, seed) if self.median else 0.0
        self.ready_at[i] = time.perf_counter() + delay

    def poll(self, wait: bool = True):
        if wait and self.ready_at:
            times = self.ready_at.values()
            until = max(times) if self.lockstep else min(times)
            time.sleep(max(0.0, until - time.perf_counter()))
        now = time.perf_counter()
        ready = [i for i in sorted(self.ready_at) if self.ready_at[i] <= now]
        self.ready_at = {i: at for i, at in self.ready_at.items() if i not in ready}
        return [(i, self.steps.pop(i)) for i in ready]


class RandomText(gymnasium.Env):
    """An endless environment that ignores its actions and shows random words of BabyAI."""

    system = f"Your goal: go to the red key. Your words are: {', '.join(VOCABULARY)}."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._text(), self._info()

    def step(self, response):
        info = dict(kept_response=self._text(), action="", valid=True, action_at=0, success=False)
        return self._text(), 0.0, False, False, self._info() | info

    def _text(self) -> str:
        return " ".join(self.np_random.choice(VOCABULARY, size=25))

    def _info(self) -> dict:
        return dict(system=self.system, instruction="What now?", kept=self._text())


class LockstepGivenLengths(TransformersEngine):
    """The transformers engine, with `response_limit` as the length of the next response submitted.

    The id that ends a response must be the last one of the vocabulary.
    """

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.queue[slot] = prompt, Countdown(seed, self.response_limit)
        self.response_limit = RESPONSE_LIMIT  # bound of the batch, which ends with its longest row


class Countdown:
    """The random numbers of a response. The last of them ends it.

    `sample` turns 1.0 into the last id of the vocabulary, and numbers below 1/2 into other ids as
    long as the last id has at most half of the probability.
    """

    def __init__(self, seed: tuple[int, ...], length: int):
        self.rng, self.left = np.random.default_rng(seed), length

    def random(self) -> float:
        self.left -= 1
        return self.rng.random() / 2 if self.left else 1.0
