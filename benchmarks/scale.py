"""Times a turn without the model, and measures what it holds, for many environments and turns.

    python -m benchmarks.scale

The toy environment is played with the embedded model's tokenizer, but without its model: every
response has the same tokens, and each log-prob and value is 0. What remains is the overhead of this
project: the pool of environments, the memory, the prompt, the storage, the micro-batches,
advantages, figures and logs. The last line times a turn with the model, the engine and the update.
"""

import gc
import itertools
import os
import tempfile
import tracemalloc
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoTokenizer

from arguments import get_args
from benchmarks.common import Stopwatch
from common.cli import Parser
from common.ranks import ALONE
from envs.pool.make import make_envs
from envs.pool.serial import training_seeds
from main import collect
from memory import make_memories
from memory.render import Renderer
from ppo.advantages import make_estimator
from ppo.distributed import make_ranks
from ppo.engines.contract import Engine
from ppo.engines.lockstep import TransformersEngine
from ppo.make import make_agent
from ppo.model.actor_critic import Scores
from ppo.model.make import make_model, make_reference
from recipes import TINY
from run.figures import batch_figures
from run.process import set_up
from run.turns import write_turns
from storage.make import make_storage

RESPONSE = "THINK: I go right.\nACTION: right"
SIZES = ((32, 8), (256, 8), (1024, 8), (32, 256), (256, 256))  # N x E
PARTS = ("collect", "score", "update", "figures and logs")


def main() -> None:
    parser = Parser("benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="only the smallest batch")
    small = parser.parse_args().small
    set_up()  # as main.py does: the garbage collector runs less often
    print("Milliseconds of processor time per turn, without a model; kilobytes held by Python.\n")
    print(f"| N x E | {' | '.join(PARTS)} | all | KB per turn | KB per environment | descriptors |")
    print("|" + "---|" * 9)
    for N, E in SIZES[:1] if small else SIZES:
        print_overhead(N, E)
    with_model()


class InstantEngine(Engine):
    """An engine without a model, whose responses are all RESPONSE."""

    def __init__(self, tokenizer):
        ends = {tokenizer.eos_token_id}
        super().__init__(tokenizer, ends, response_limit=64, temperature=1.0)
        self.ids = [*tokenizer(RESPONSE, add_special_tokens=False)["input_ids"], min(ends)]

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.queue[slot] = prompt

    def step(self) -> list[tuple[int, object]]:
        queue, self.queue = self.queue, {}
        logps = [0.0] * len(self.ids)
        return [(slot, self.response(prompt, self.ids, logps)) for slot, prompt in queue.items()]


class ZeroActorCritic:
    """Takes the place of the actor-critic: each log-prob, entropy and value is 0."""

    def __call__(self, batch):
        zeros = torch.zeros(len(batch.tokens))
        return Scores(zeros, zeros, zeros)

    def values(self, batch):
        return torch.zeros(len(batch.tokens))


class ZeroReference:
    """Takes the place of the reference: each log-prob is 0."""

    def __call__(self, batch):
        return torch.zeros(len(batch.tokens))


class Trainer:
    """A trainer of N environments without a model.

    seconds: processor seconds of each part of an update, summed over updates
    env_bytes: bytes that Python holds for all environments and memories
    """

    def __init__(self, N: int, E: int):
        self.args = get_args([
            "--env-name", "toy", "--n-env", str(N), "--e-len", str(E), "--model", str(TINY),
            "--minibatch", "64", "--w-epoch", "0", "--log-envs", "4",
        ])  # fmt: skip
        environment, generation = self.args.environment, self.args.generation
        self.tokenizer = AutoTokenizer.from_pretrained(TINY)
        tracemalloc.start()
        self.envs = make_envs(environment, generation, training_seeds(1, range(N)))
        self.memories = make_memories(environment, self.envs.resume(None))
        self.env_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        self.render = Renderer(self.tokenizer, self.args.prompt_limit)
        self.rollouts = make_storage(self.args.batch, self.args.update, ALONE)
        self.seconds = defaultdict(float)
        self.folder = tempfile.TemporaryDirectory()

    def collect(self, engine):
        return collect(self.envs, self.memories, engine, self.render, self.rollouts, 1)

    def update(self, engine, number: int) -> None:
        """Do the work of an update, except that of the model and the optimizer."""
        size, generator = self.args.minibatch, torch.Generator().manual_seed(number)
        with self._part("collect"):
            batch = self.collect(engine)
        with self._part("score"):
            plan = [minibatches(batch, size, generator) for _ in range(self.args.ppo_epoch)]
            batch.score(ZeroActorCritic(), ZeroReference(), plan[0])
            batch.compute_returns(make_estimator(self.args.update))
        with self._part("update"):
            for rows in itertools.chain.from_iterable(plan):
                for micro in batch.micro_batches(rows):
                    batch.take(batch.logps, micro.rows)
        with self._part("figures and logs"):
            batch_figures(batch)
            write_turns(Path(self.folder.name), number, batch, self.tokenizer, 4)
        self.rollouts.after_update(batch)

    @contextmanager
    def _part(self, name: str):
        with Stopwatch() as took:
            yield
        self.seconds[name] += took.processor_seconds


def minibatches(batch, size: int, generator) -> list[list[int]]:
    order = torch.randperm(len(batch.rows), generator=generator)
    chunks = order.tensor_split(max(1, round(len(batch.rows) / size)))
    return [[batch.rows[i] for i in chunk.tolist()] for chunk in chunks]


def print_overhead(N: int, E: int) -> None:
    """Print what each part of a turn costs without a model, and the memory that Python holds."""
    trainer = Trainer(N, E)
    engine = InstantEngine(trainer.tokenizer)
    trainer.update(engine, 1)  # not timed: it loads what is loaded on first use
    trainer.seconds.clear()
    updates = max(1, 4096 // (N * E))
    for number in range(updates):
        trainer.update(engine, number + 2)
    gc.collect()
    tracemalloc.start()
    batch = trainer.collect(engine)
    turn_kb = tracemalloc.get_traced_memory()[0] / len(batch.samples) / 1000
    tracemalloc.stop()
    each = [trainer.seconds[part] / (updates * N * E) * 1000 for part in PARTS]
    shown = " | ".join(f"{ms:.3f}" for ms in [*each, sum(each)])
    descriptors, env_kb = len(os.listdir("/proc/self/fd")), trainer.env_bytes / N / 1000
    print(f"| {N} x {E} | {shown} | {turn_kb:.1f} | {env_kb:.1f} | {descriptors} |", flush=True)
    trainer.envs.close()


def with_model() -> None:
    """Print what a turn costs with the embedded model."""
    trainer = Trainer(32, 8)
    args, ranks = trainer.args, make_ranks(trainer.args.zero_stage)
    actor_critic, tokenizer, ends = make_model(
        args.generation, args.update, ranks.device, args.seed
    )
    reference = make_reference(args.update, actor_critic)
    agent = make_agent(args.update, actor_critic, ranks, args.seed)
    engine = TransformersEngine(tokenizer, ends, args.response_limit, args.temperature)
    engine.push_weights(actor_critic)
    updates, turns = 4, 32 * 8
    with Stopwatch() as took:
        for _ in range(updates):
            batch = trainer.collect(engine)
            plan = agent.plan(batch)
            batch.score(actor_critic, reference, plan[0])
            batch.compute_returns(make_estimator(args.update))
            agent.update(batch, plan)
            trainer.rollouts.after_update(batch)
    each = took.processor_seconds / updates / turns * 1000
    print(f"\nWith the embedded model a turn of a 32 x 8 batch takes {each:.2f} ms.")
    trainer.envs.close()


if __name__ == "__main__":
    main()
