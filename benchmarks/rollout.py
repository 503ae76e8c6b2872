"""The table of rollout ratios: vLLM against lock-step, transformers and a cache that is off.

    python -m benchmarks.rollout                               some minutes; needs vLLM
    python -m benchmarks.rollout --shape 3b --n-env 256        random weights, for a GPU

Every ratio is the median of three pairs, taken in random order within one run of one model. Lengths
of responses and times of environments are drawn from (repetition, slot, count), the same for both
sides of a pair, and the prompts do not depend on the responses.
"""

import argparse
import math
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from unittest.mock import patch

import gymnasium
import numpy as np
import torch

import memory
from arguments import TINY
from benchmarks.large import SHAPES, build
from envs.pool.seeds import training_seeds
from envs.pool.vec_env import VecEnv
from main import collect
from memory.chat import make_render
from ppo.engines.lockstep import TransformersEngine, sample
from ppo.model.actor_critic import ActorCritic
from ppo.model.decoder import choose_dtype
from ppo.model.pretrained import load_lm
from storage.ranks import ALONE
from storage.rollout import RolloutStorage

REPETITIONS = 3
PROMPT_LIMIT, RESPONSE_LIMIT, END = 1024, 512, 0
SIGMA = math.log(400 / 60) / 2.326  # of a lognormal whose 99th percentile is 400 / 60 medians
TOKENS, SECONDS = 60, 0.3  # medians, of a response and of a turn of a slow environment
MEAN = round(TOKENS * math.exp(SIGMA**2 / 2))  # tokens: the work of the heavy-tailed lengths


@dataclass(frozen=True)
class Way:
    """One way to collect e_len turns of each environment."""

    engine: str = "vllm"
    tokens: int = 0  # of every response; 0: heavy-tailed
    slow: bool = False  # environments that take a heavy-tailed time
    together: bool = False  # lock-step: all responses, then all environments
    memory_length: int = 0
    e_len: int = 6


EVENTS, SLOW, MEMORY = Way(), Way(slow=True), Way(tokens=32, memory_length=4)
LOCK_STEP, SLOW_LOCK_STEP = replace(EVENTS, together=True), replace(SLOW, together=True)
PAIRS = [  # name, A, B, target
    ("slow environments: event-driven / lock-step", SLOW, SLOW_LOCK_STEP, ">= 2"),
    ("fast environments: event-driven / lock-step", EVENTS, LOCK_STEP, ""),
    ("equal lengths: vLLM / transformers", Way(tokens=MEAN), Way("transformers", MEAN), ">= 1"),
    ("heavy-tailed lengths: vLLM / transformers", EVENTS, Way("transformers"), ">= 2"),
    ("memory length 4: prefix cache on / off", MEMORY, replace(MEMORY, engine="uncached"), ""),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shape = "random weights of this shape; default: the embedded model"
    parser.add_argument("--shape", choices=SHAPES, help=shape)
    parser.add_argument("--n-env", type=int, default=32)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        if args.shape:
            build(args.shape, folder)
        print(f"{args.shape or 'embedded'} model, N = {args.n_env}")
        measure(folder if args.shape else str(TINY), args.n_env)


def measure(model: str, n_env: int) -> None:
    dtype = choose_dtype("auto", ALONE.device)
    lm, tokenizer, _ = load_lm(model, ALONE.device)
    actor_critic = ActorCritic(lm, 0, 1.0, dtype=dtype)
    render = make_render(tokenizer, PROMPT_LIMIT)
    settings = dict(model=model, dtype=str(dtype).removeprefix("torch."), max_num_seqs=n_env)
    start, vllm = timed(build_vllm, tokenizer, settings)  # the import of vLLM included
    transformers = RowLimits(tokenizer, {END}, RESPONSE_LIMIT, 1.0)
    uncached = build_vllm(tokenizer, settings, enable_prefix_caching=False, enable_sleep_mode=False)
    built = dict(vllm=vllm, uncached=uncached, transformers=transformers)
    for engine in built.values():
        engine.push_weights(actor_critic)
    pushes = [timed(vllm.push_weights, actor_critic)[0] for _ in range(REPETITIONS)]
    ways = sorted({way for _, *pair, _ in PAIRS for way in pair}, key=repr)
    for way in ways:  # not measured
        rollout(replace(way, e_len=1), n_env, built[way.engine], render, REPETITIONS)
    rates, rng = {}, random.Random(0)
    for repetition in range(REPETITIONS):
        for way in rng.sample(ways, len(ways)):
            rates[way, repetition] = rollout(way, n_env, built[way.engine], render, repetition)
    print(f"{ALONE.device}, {settings['dtype']}, {torch.get_num_threads()} OpenMP thread(s)")
    for clock, what in enumerate(("second", "second of processor time")):
        print(f"{f'turns per {what}: A / B':46s} {'A':>7s} {'B':>7s}  A / B  target  pairs")
        for name, a, b, target in PAIRS:
            pairs = [(rates[a, k][clock], rates[b, k][clock]) for k in range(REPETITIONS)]
            ratios = [x / y for x, y in pairs]
            x, y = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio, each = statistics.median(ratios), " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"{name:46s} {x:7.2f} {y:7.2f} {ratio:6.2f}  {target:6s}  {each}")
    print(f"vLLM: start-up {start:.1f} s, push_weights {statistics.median(pushes):.3f} s")


def timed(function, *args):
    """Seconds and the result."""
    start = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - start, result


def rollout(way: Way, n_env: int, engine, render, repetition: int) -> tuple[float, float]:
    """Turns of `way` per second, and per second of this process's processor time."""
    envs = SlowEnvs(n_env, repetition, SECONDS if way.slow else 0.0, way.together)
    memories = [memory.make("window", way.memory_length) for _ in range(n_env)]
    for mem, first in zip(memories, envs.envs.reset(), strict=True):
        mem.reset(first)
    storage = RolloutStorage(way.e_len, n_env, 4096)
    drawn = Lengths(engine, way.tokens, way.together, repetition)
    worked = time.process_time()
    taken, _ = timed(collect, envs, memories, drawn, render, storage, repetition)
    worked = time.process_time() - worked
    for count, turns in enumerate(storage.responses, 1):
        lengths = [drawn.length(slot, count) for slot in range(n_env)]
        assert [len(response.ids) for response in turns] == lengths, (way, count)
    turns = n_env * way.e_len
    return turns / taken, turns / worked


def heavy_tailed(median: float, *seed: int) -> float:
    return float(np.random.default_rng(seed).lognormal(math.log(median), SIGMA))


class Lengths:
    """An engine that samples `tokens` tokens (0: heavy-tailed), all `together` or not."""

    def __init__(self, engine, tokens: int, together: bool, seed: int):
        self.engine, self.tokens, self.together, self.seed = engine, tokens, together, seed
        self.count = Counter()  # of the responses of each slot

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.count[slot] += 1
        self.engine.response_limit = self.length(slot, self.count[slot])
        self.engine.submit(slot, prompt, seed)

    def length(self, slot: int, count: int) -> int:
        drawn = heavy_tailed(TOKENS, self.seed, slot, count, 1)
        return self.tokens or min(max(round(drawn), 1), RESPONSE_LIMIT)

    def step(self):
        done = self.engine.step()
        while self.together and not self.engine.idle:
            done += self.engine.step()
        return done


class SlowEnvs:
    """Environments of about `median` seconds, as if each had its process; `together` or not."""

    def __init__(self, n_env: int, seed: int, median: float, together: bool):
        self.envs = VecEnv(Story, training_seeds(seed, range(n_env)))
        self.seed, self.median, self.together = seed, median, together
        self.n_env, self.place = n_env, self.envs.place
        self.count, self.answers = [0] * n_env, {}  # i -> (when it is due, Step)

    def send(self, i: int, text: str) -> None:
        self.envs.send(i, text)
        [(_, step)] = self.envs.poll()
        self.count[i] += 1
        taken = heavy_tailed(self.median, self.seed, i, self.count[i], 2) if self.median else 0.0
        self.answers[i] = time.perf_counter() + taken, step

    def poll(self, wait: bool = True):
        times = [due for due, _ in self.answers.values()]
        if wait and times:
            until = max(times) if self.together else min(times)
            time.sleep(max(0.0, until - time.perf_counter()))
        now = time.perf_counter()
        ready = [i for i in sorted(self.answers) if self.answers[i][0] <= now]
        return [(i, self.answers.pop(i)[1]) for i in ready]


class Story(gymnasium.Env):
    """Goes on without end, whatever it is told, in the words of BabyAI."""

    words = "you see a red key blue door green ball grey box steps forward left right wall".split()
    system = f"Your goal: go to the red key. Your words are: {', '.join(words)}."

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._text(), self._info()

    def step(self, response):
        facts = dict(said=self._text(), action="", valid=True, action_at=0, success=False)
        return self._text(), 0.0, False, False, self._info() | facts

    def _text(self) -> str:
        return " ".join(self.np_random.choice(self.words, size=25))

    def _info(self) -> dict:
        return dict(system=self.system, instruction="What now?", kept=self._text())


class RowLimits(TransformersEngine):
    """A limit for each response, `response_limit` as it is when the prompt is submitted."""

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        rng = Counted(np.random.PCG64(seed))
        rng.left = self.response_limit
        self.queue.append((slot, prompt, rng))

    def _generate(self, prompts, rngs):
        self.response_limit = max(rng.left for rng in rngs)
        with patch("ppo.engines.lockstep.sample", sample_counted):
            return super()._generate(prompts, rngs)


class Counted(np.random.Generator):
    """Of a response with `left` tokens to go."""


def sample_counted(logits, temperature, rngs):
    """As `sample`, but a response ends with its last token and never before."""
    logits[:, END] = -torch.inf
    tokens, logps = sample(logits, temperature, rngs)
    for rng in rngs:
        rng.left -= 1
    tokens[torch.tensor([rng.left == 0 for rng in rngs])] = END
    return tokens, logps


def build_vllm(tokenizer, settings: dict, **options):
    """options: of vLLM itself. Only one engine of a process can sleep, on a GPU."""
    from ppo.engines import vllm as engine_vllm

    make = engine_vllm.LLM
    with patch.object(engine_vllm, "LLM", lambda **others: make(**others | options)):
        return engine_vllm.VLLMEngine(
            tokenizer, set(), RESPONSE_LIMIT, 1.0, **settings,
            prompt_limit=PROMPT_LIMIT, seed=0, gpu_memory_utilization=0.3,
        )  # fmt: skip


if __name__ == "__main__":
    main()
