"""Prints ratios of rollouts: vLLM against lock-step, transformers and no prefix cache.

    python -m benchmarks.rollout                               some minutes; needs vLLM
    python -m benchmarks.rollout --shape 3b --n-env 256        random weights, for a GPU

Every ratio is the median of three pairs, taken in random order within one run of one model. Lengths
of responses and times of environments are drawn from (repetition, slot, count), the same for both
sides of a pair, and the prompts do not depend on the responses.
"""

import math
import random
import statistics
import time
from argparse import Namespace
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from unittest.mock import patch

import gymnasium
import numpy as np
import torch

from benchmarks.common import SHAPES, Stopwatch, make_vllm, medians, save_model, seconds
from common.cli import Parser
from common.ranks import ALONE
from common.wrapper import Wrapper
from envs.pool.resilient import ResilientPool
from envs.pool.serial import training_seeds
from main import collect
from memory import make_memories
from memory.render import Renderer
from ppo.engines.lockstep import TransformersEngine
from ppo.model.make import build, choose_dtype
from ppo.model.pretrained import load_lm
from recipes import TINY
from storage.batch import Scoring
from storage.collection import Collection, FixedTurns

REPETITIONS = 3
PROMPT_LIMIT, RESPONSE_LIMIT = 1024, 512
SIGMA = math.log(400 / 60) / 2.326  # of a lognormal whose 99th percentile is 400 / 60 medians
TOKENS, SECONDS = 60, 0.3  # medians: tokens of a response, seconds of a slow environment's turn
MEAN = round(TOKENS * math.exp(SIGMA**2 / 2))  # tokens of equal responses with the same work


@dataclass(frozen=True)
class Way:
    """One way to collect e_len turns of each environment."""

    engine: str = "vllm"
    tokens: int = 0  # of every response; 0: heavy-tailed
    slow: bool = False  # environments take a heavy-tailed time
    together: bool = False  # lock-step: all responses, then all environments
    memory_length: int = 0
    e_len: int = 6


EVENTS, SLOW, MEMORY = Way(), Way(slow=True), Way(tokens=32, memory_length=4)
LOCK_STEP, SLOW_LOCK_STEP = replace(EVENTS, together=True), replace(SLOW, together=True)
RATIOS = [  # name, A, B, target
    ("slow environments: event-driven / lock-step", SLOW, SLOW_LOCK_STEP, ">= 2"),
    ("fast environments: event-driven / lock-step", EVENTS, LOCK_STEP, ""),
    ("equal lengths: vLLM / transformers", Way(tokens=MEAN), Way("transformers", MEAN), ">= 1"),
    ("heavy-tailed lengths: vLLM / transformers", EVENTS, Way("transformers"), ">= 2"),
    ("memory length 4: prefix cache on / off", MEMORY, replace(MEMORY, engine="uncached"), ""),
]


def main() -> None:
    parser = Parser("benchmarks.rollout", description=__doc__.splitlines()[0])
    shape = "random weights of this shape; default: the embedded model"
    parser.add_argument("--shape", choices=SHAPES, help=shape)
    parser.add_argument("--n-env", type=int, default=32, help="number of environments")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        if args.shape:
            save_model(args.shape, folder)
        print(f"{args.shape or 'embedded'} model, N = {args.n_env}")
        measure(folder if args.shape else str(TINY), args.n_env)


def measure(model: str, n_env: int) -> None:
    dtype = choose_dtype("auto", ALONE.device)
    lm, tokenizer, _ = load_lm(model, ALONE.device)
    actor_critic = build(lm, 0, dtype=dtype)
    render = Renderer(tokenizer, PROMPT_LIMIT)
    make = partial(make_vllm, model, tokenizer, set(), n_env, dtype, PROMPT_LIMIT, RESPONSE_LIMIT)
    with Stopwatch() as start:  # the import of vLLM included
        vllm = make()
    transformers = RowLengths(tokenizer, {lm.config.vocab_size - 1}, RESPONSE_LIMIT, 1.0)
    engines = dict(vllm=vllm, uncached=without_cache(make), transformers=transformers)
    for engine in engines.values():
        engine.push_weights(actor_critic)
    pushes = [seconds(partial(vllm.push_weights, actor_critic)) for _ in range(REPETITIONS)]
    ways = sorted({way for _, a, b, _ in RATIOS for way in (a, b)}, key=repr)
    for way in ways:  # not measured
        rollout(replace(way, e_len=1), n_env, engines[way.engine], render, REPETITIONS)
    took, rng = {}, random.Random(0)
    for k in range(REPETITIONS):
        for way in rng.sample(ways, len(ways)):
            took[way, k] = rollout(way, n_env, engines[way.engine], render, k)
    print(f"{ALONE.device}, {dtype}, {torch.get_num_threads()} OpenMP thread(s)")
    clocks = {"second": "seconds", "second of processor time": "processor_seconds"}
    for what, clock in clocks.items():
        rates = {key: n_env * key[0].e_len / getattr(t, clock) for key, t in took.items()}
        print_table(what, rates)
    push = statistics.median(pushes)
    print(f"vLLM: start-up {start.seconds:.1f} s, push_weights {push:.3f} s")


def without_cache(make):
    """Call `make` for an engine without a prefix cache; only one engine of a process can sleep."""
    from ppo.engines import vllm_settings

    original = vllm_settings.LLM
    options = dict(enable_prefix_caching=False, enable_sleep_mode=False)

    def changed(**settings):
        return original(**settings | options)

    with patch.object(vllm_settings, "LLM", changed):
        return make()


def print_table(what: str, rates: dict[tuple[Way, int], float]) -> None:
    """Print all ratios. rates: turns per `what` of each way in each repetition"""
    print(f"{f'turns per {what}: A / B':46s} {'A':>7s} {'B':>7s}  A / B  target  pairs")
    for name, a, b, target in RATIOS:
        pairs = [(rates[a, k], rates[b, k]) for k in range(REPETITIONS)]
        of_a, of_b, ratio = medians(pairs)
        each = " ".join(f"{x / y:.2f}" for x, y in pairs)
        print(f"{name:46s} {of_a:7.2f} {of_b:7.2f} {ratio:6.2f}  {target:6s}  {each}")


def rollout(way: Way, n_env: int, engine, render, repetition: int) -> Stopwatch:
    """Collect n_env * e_len turns in this way; return the time it took."""
    envs = SlowEnvs(n_env, repetition, SECONDS if way.slow else 0.0, way.together)
    settings = Namespace(memory="window", memory_length=way.memory_length, history_thinking="keep")
    memories = make_memories(settings, envs.resume(None))
    rollouts = Collection(n_env, FixedTurns(way.e_len), Scoring(4096))
    lengths = Lengths(engine, way.tokens, way.together, repetition)
    with Stopwatch() as took:
        batch = collect(envs, memories, lengths, render, rollouts, repetition)
    for count, turns in enumerate(batch.responses, 1):
        wanted = [lengths.length(slot, count) for slot in range(n_env)]
        assert [len(response.ids) for response in turns] == wanted, (way, count)
    return took


def heavy_tailed(median: float, *seed: int) -> float:
    return float(np.random.default_rng(seed).lognormal(math.log(median), SIGMA))


class Lengths(Wrapper):
    """An engine whose responses have a given length.

    tokens: length of every response; 0: heavy-tailed
    together: whether a step completes all responses that are under way
    """

    def __init__(self, engine, tokens: int, together: bool, seed: int):
        super().__init__(engine)
        self.tokens, self.together, self.seed = tokens, together, seed
        self.count = Counter()  # slot -> number of its responses

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.count[slot] += 1
        self.inner.response_limit = self.length(slot, self.count[slot])
        self.inner.submit(slot, prompt, seed)

    def length(self, slot: int, count: int) -> int:
        drawn = heavy_tailed(TOKENS, self.seed, slot, count, 1)
        return self.tokens or min(max(round(drawn), 1), RESPONSE_LIMIT)

    def step(self):
        done = self.inner.step()
        while self.together and not self.inner.idle:
            done += self.inner.step()
        return done


class SlowEnvs(ResilientPool):
    """Environments that take time, as if each had its own process.

    median: seconds of a turn, heavy-tailed; 0: none
    together: whether `poll` waits for all environments that are busy
    """

    def __init__(self, n_env: int, seed: int, median: float, together: bool):
        super().__init__(Story, training_seeds(seed, range(n_env)))
        self.seed, self.median, self.together = seed, median, together
        self.count, self.due, self.held = Counter(), {}, {}  # turns, time of the answer, Step

    def send(self, i: int, response: str) -> None:
        super().send(i, response)
        self.held |= dict(super().poll())
        self.count[i] += 1
        delay = heavy_tailed(self.median, self.seed, i, self.count[i], 2) if self.median else 0.0
        self.due[i] = time.perf_counter() + delay

    def poll(self, wait: bool = True):
        if wait and self.due:
            until = max(self.due.values()) if self.together else min(self.due.values())
            time.sleep(max(0.0, until - time.perf_counter()))
        now = time.perf_counter()
        ready = [i for i in sorted(self.due) if self.due[i] <= now]
        self.due = {i: due for i, due in self.due.items() if i not in ready}
        return [(i, self.held.pop(i)) for i in ready]


class Story(gymnasium.Env):
    """An endless environment that ignores its actions and speaks in the words of BabyAI."""

    words = "you see a red key blue door green ball grey box steps forward left right wall".split()
    system = f"Your goal: go to the red key. Your words are: {', '.join(words)}."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._text(), self._info()

    def step(self, response):
        facts = dict(kept_response=self._text(), action="", valid=True, action_at=0, success=False)
        return self._text(), 0.0, False, False, self._info() | facts

    def _text(self) -> str:
        return " ".join(self.np_random.choice(self.words, size=25))

    def _info(self) -> dict:
        return dict(system=self.system, instruction="What now?", kept=self._text())


class RowLengths(TransformersEngine):
    """An engine in which `response_limit` is the length of the response submitted next.

    The id that ends a response must be the last one of the vocabulary.
    """

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.queue[slot] = prompt, Countdown(seed, self.response_limit)
        self.response_limit = RESPONSE_LIMIT  # bound of the batch, which ends with its last row


class Countdown:
    """The random numbers of a response, of which the last ends it.

    `sample` turns 1.0 into the last id of the vocabulary, and numbers below 1/2 into other ids,
    unless the last id has more than half of the probability.
    """

    def __init__(self, seed: tuple[int, ...], left: int):
        self.rng, self.left = np.random.default_rng(seed), left

    def random(self) -> float:
        self.left -= 1
        return self.rng.random() / 2 if self.left else 1.0


if __name__ == "__main__":
    main()
