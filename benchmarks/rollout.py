"""Compares ways to collect turns: vLLM with lock-step, transformers and no prefix cache.

    python -m benchmarks.rollout                               some minutes; needs vLLM
    python -m benchmarks.rollout --shape 3b --n-env 256        random weights, for a GPU

Each ratio is the median of --rounds pairs. Within one process the setups run in random order on the
same model. Lengths of responses and delays of environments come from `benchmarks.workload`.
"""

import random
import statistics
from argparse import Namespace
from dataclasses import dataclass, replace
from functools import partial
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch

from benchmarks.common import SHAPES, Stopwatch, make_vllm, medians, save_model, seconds
from benchmarks.workload import (
    MEAN,
    RESPONSE_LIMIT,
    SECONDS,
    GivenLengths,
    LockstepGivenLengths,
    SlowEnvs,
)
from common.cli import Parser
from common.ranks import ALONE
from main import collect
from memory import make_memories
from memory.render import Renderer
from ppo.model.make import build, choose_dtype
from ppo.model.pretrained import load_lm
from recipes import TINY
from storage.batch import Scoring
from storage.collection import Collection, FixedTurns

PROMPT_LIMIT = 1024


@dataclass(frozen=True)
class Setup:
    """One way to collect e_len turns of each environment."""

    engine: str = "vllm"
    tokens: int = 0  # of every response; 0: heavy-tailed
    slow: bool = False  # whether environments take a heavy-tailed time
    lockstep: bool = False  # whether all responses come first and then all environments
    memory_length: int = 0
    e_len: int = 6


@dataclass(frozen=True)
class Ratio:
    """Turns per second of `a`, divided by those of `b`."""

    name: str
    a: Setup
    b: Setup
    target: str = ""


FAST, SLOW, MEMORY = Setup(), Setup(slow=True), Setup(tokens=32, memory_length=4)
EQUAL = Setup(tokens=MEAN)
FAST_LOCKSTEP, SLOW_LOCKSTEP = replace(FAST, lockstep=True), replace(SLOW, lockstep=True)
TRANSFORMERS = replace(FAST, engine="transformers")
RATIOS = [
    Ratio("slow environments: event-driven / lock-step", SLOW, SLOW_LOCKSTEP, ">= 2"),
    Ratio("fast environments: event-driven / lock-step", FAST, FAST_LOCKSTEP),
    Ratio("equal lengths: vLLM / transformers", EQUAL, replace(TRANSFORMERS, tokens=MEAN), ">= 1"),
    Ratio("heavy-tailed lengths: vLLM / transformers", FAST, TRANSFORMERS, ">= 2"),
    Ratio("memory length 4: prefix cache on / off", MEMORY, replace(MEMORY, engine="uncached")),
]


def main() -> None:
    parser = Parser("benchmarks.rollout", description=__doc__.splitlines()[0])
    shape = "random weights of this shape; default: the embedded model"
    parser.add_argument("--shape", choices=SHAPES, help=shape)
    parser.add_argument("--n-env", type=int, default=32, help="number of environments")
    parser.add_argument("--rounds", type=int, default=3, help="number of timed pairs")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        if args.shape:
            save_model(args.shape, folder)
        print(f"{args.shape or 'embedded'} model, N = {args.n_env}")
        measure(folder if args.shape else str(TINY), args.n_env, args.rounds)


def measure(model: str, n_env: int, rounds: int) -> None:
    """Time every setup in every round, and print the ratios."""
    dtype = choose_dtype("auto", ALONE.device)
    lm, tokenizer, _ = load_lm(model, ALONE.device)
    actor_critic = build(lm, 0, dtype=dtype)
    render = Renderer(tokenizer, PROMPT_LIMIT)
    make = partial(make_vllm, model, tokenizer, set(), n_env, dtype, PROMPT_LIMIT, RESPONSE_LIMIT)
    with Stopwatch() as start:  # includes the import of vLLM
        vllm = make()
    transformers = LockstepGivenLengths(tokenizer, {lm.config.vocab_size - 1}, RESPONSE_LIMIT, 1.0)
    engines = dict(vllm=vllm, uncached=without_cache(make), transformers=transformers)
    for engine in engines.values():
        engine.push_weights(actor_critic)
    push = statistics.median(seconds(partial(vllm.push_weights, actor_critic)) for _ in range(3))
    setups = sorted({setup for ratio in RATIOS for setup in (ratio.a, ratio.b)}, key=repr)
    for setup in setups:  # not timed
        rollout(replace(setup, e_len=1), n_env, engines[setup.engine], render, rounds)
    took, rng = {}, random.Random(0)
    for k in range(rounds):
        for setup in rng.sample(setups, len(setups)):
            took[setup, k] = rollout(setup, n_env, engines[setup.engine], render, k)
    print(f"{ALONE.device}, {dtype}, {torch.get_num_threads()} OpenMP thread(s)")
    clocks = {"second": "seconds", "second of processor time": "processor_seconds"}
    for unit, clock in clocks.items():
        rates = {key: n_env * key[0].e_len / getattr(time, clock) for key, time in took.items()}
        print_table(unit, rates, rounds)
    print(f"vLLM: start-up {start.seconds:.1f} s, push_weights {push:.3f} s")


def without_cache(make):
    """Call `make` for an engine without a prefix cache. Only one engine of a process can sleep."""
    from ppo.engines import vllm_settings

    original = vllm_settings.LLM
    options = dict(enable_prefix_caching=False, enable_sleep_mode=False)

    def changed(**settings):
        return original(**settings | options)

    with patch.object(vllm_settings, "LLM", changed):
        return make()


def print_table(unit: str, rates: dict[tuple[Setup, int], float], rounds: int) -> None:
    """Print all ratios. rates: turns per `unit` of each setup in each round"""
    print(f"{f'turns per {unit}: A / B':46s} {'A':>7s} {'B':>7s}  A / B  target  pairs")
    for row in RATIOS:
        pairs = [(rates[row.a, k], rates[row.b, k]) for k in range(rounds)]
        a, b, ratio = medians(pairs)
        each = " ".join(f"{x / y:.2f}" for x, y in pairs)
        print(f"{row.name:46s} {a:7.2f} {b:7.2f} {ratio:6.2f}  {row.target:6s}  {each}")


def rollout(setup: Setup, n_env: int, engine, render, repetition: int) -> Stopwatch:
    """Collect n_env * e_len turns with this setup. Returns the time that it took."""
    envs = SlowEnvs(n_env, repetition, SECONDS if setup.slow else 0.0, setup.lockstep)
    memory = Namespace(memory="window", memory_length=setup.memory_length, history_thinking="keep")
    memories = make_memories(memory, envs.resume(None))
    rollouts = Collection(n_env, FixedTurns(setup.e_len), Scoring(4096))
    lengths = GivenLengths(engine, setup.tokens, setup.lockstep, repetition)
    with Stopwatch() as took:
        batch = collect(envs, memories, lengths, render, rollouts, repetition)
    for count, turns in enumerate(batch.responses, 1):
        expected = [lengths.length(slot, count) for slot in range(n_env)]
        assert [len(response.ids) for response in turns] == expected, (setup, count)
    return took


if __name__ == "__main__":
    main()
