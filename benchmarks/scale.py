"""What a turn costs beside the model, and what it holds, as environments and turns grow in number.

    python -m benchmarks.scale

The toy environment is played with the embedded model's tokenizer. Nothing is computed by a model:
every response has the same tokens, and each log-prob and value is 0. What is left is what this
project adds to a turn: the pool of environments, the memory, the prompt, the storage, the
micro-batches, advantages, figures and logs. The second table has the real model, engine and update.
"""

import argparse
import gc
import itertools
import os
import tempfile
import tracemalloc
from collections import defaultdict
from pathlib import Path

import torch
from transformers import AutoTokenizer

from arguments import get_args
from benchmarks.common import Stopwatch, proc_bytes
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
from run.process import GC_THRESHOLDS
from run.turns import write_turns
from storage.make import make_storage

RESPONSE = "THINK: I go right.\nACTION: right"
SIZES = ((32, 8), (256, 8), (1024, 8), (32, 256), (256, 256))
AGES = 400  # updates of the run whose first and last ones are compared


class Ready(Engine):
    """An engine that answers RESPONSE at once."""

    def __init__(self, tokenizer, ends: set[int]):
        super().__init__(tokenizer, ends, response_limit=64, temperature=1.0)
        self.ids = [*tokenizer(RESPONSE, add_special_tokens=False)["input_ids"], min(ends)]

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.queue[slot] = prompt

    def step(self) -> list[tuple[int, object]]:
        asked, self.queue = self.queue, {}
        logps = [0.0] * len(self.ids)
        return [(slot, self.response(prompt, self.ids, logps)) for slot, prompt in asked.items()]


class Nothing:
    """Takes the place of the actor-critic and of the reference: everything is 0."""

    def __call__(self, batch):
        zeros = torch.zeros(len(batch.tokens))
        return Scores(zeros, zeros, zeros) if self.critic else zeros

    def __init__(self, critic: bool):
        self.critic = critic

    def values(self, batch):
        return torch.zeros(len(batch.tokens))


class Play:
    """N environments and what belongs to them. seconds: of each part, added up"""

    def __init__(self, N: int, E: int):
        words = f"--env-name toy --n-env {N} --e-len {E} --model {TINY} --minibatch 64 --w-epoch 0"
        self.args = get_args([*words.split(), "--log-envs", "4"])
        self.tokenizer = AutoTokenizer.from_pretrained(TINY)
        tracemalloc.start()
        self.envs = make_envs(
            self.args.environment, self.args.generation, training_seeds(1, range(N))
        )
        self.memories = make_memories(self.args, self.envs.resume(None))
        self.of_environments = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        self.render = Renderer(self.tokenizer, self.args.prompt_limit)
        self.rollouts, self.seconds = (
            make_storage(self.args.batch, self.args.update, ALONE),
            defaultdict(float),
        )
        self.folder = tempfile.TemporaryDirectory()

    def collected(self, engine):
        return collect(self.envs, self.memories, engine, self.render, self.rollouts, 1)

    def update(self, engine, number: int) -> None:
        """An update without a model."""
        actor, reference = Nothing(True), Nothing(False)
        generator = torch.Generator().manual_seed(number)
        with self._part("collect"):
            batch = self.collected(engine)
        with self._part("score"):

            def mixed():
                return _minibatches(batch, self.args.minibatch, generator)

            plan = [mixed() for _ in range(self.args.ppo_epoch)]
            batch.score(actor, reference, plan[0])
            batch.compute_returns(make_estimator(self.args))
        with self._part("update"):
            for rows in itertools.chain(*plan):
                for micro in batch.micro_batches(rows):
                    batch.take(batch.logps, micro.rows)
        with self._part("figures and logs"):
            batch_figures(batch)
            write_turns(Path(self.folder.name), number, batch, self.tokenizer, 4)
        self.rollouts.after_update(batch)

    def _part(self, name: str):
        return _Part(self.seconds, name)


class _Part(Stopwatch):
    def __init__(self, seconds: dict, name: str):
        self.all, self.name = seconds, name

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        self.all[self.name] += self.processor_seconds


def _minibatches(rollouts, size: int, generator) -> list[list[int]]:
    order = torch.randperm(len(rollouts.rows), generator=generator)
    chunks = order.tensor_split(max(1, round(len(rollouts.rows) / size)))
    return [[rollouts.rows[place] for place in chunk.tolist()] for chunk in chunks]


def overhead() -> None:
    """Print what a turn costs without a model, part by part, and what is held."""
    print("Milliseconds of processor time a turn, without a model; kilobytes held by Python.\n")
    parts = ("collect", "score", "update", "figures and logs")
    print(f"| N x E | {' | '.join(parts)} | all | KB a turn | KB an environment | descriptors |")
    print("|" + "---|" * 9)
    for N, E in SIZES:
        play = Play(N, E)
        engine = Ready(play.tokenizer, {play.tokenizer.eos_token_id})
        play.update(engine, 1)  # what is loaded at first use is loaded
        play.seconds.clear()
        updates = max(1, 4096 // (N * E))
        for number in range(updates):
            play.update(engine, number + 2)
        gc.collect()
        tracemalloc.start()
        play.collected(engine)
        a_turn = tracemalloc.get_traced_memory()[0] / (N * E) / 1000
        tracemalloc.stop()
        each = [play.seconds[part] / (updates * N * E) * 1000 for part in parts]
        shown = " | ".join(f"{ms:.3f}" for ms in [*each, sum(each)])
        descriptors = len(os.listdir("/proc/self/fd"))
        an_environment = play.of_environments / N / 1000
        print(f"| {N} x {E} | {shown} | {a_turn:.1f} | {an_environment:.1f} | {descriptors} |")
        play.envs.close()


def ages() -> None:
    """Print what the first and the last updates of a long run cost."""
    play = Play(32, 8)
    engine = Ready(play.tokenizer, {play.tokenizer.eos_token_id})
    took, held = [], []
    for number in range(1, AGES + 1):
        with Stopwatch() as stopwatch:
            play.update(engine, number)
        took.append(stopwatch.processor_seconds * 1000)
        held.append(proc_bytes("VmRSS"))
    tenth = AGES // 10
    early, late = sum(took[tenth : 2 * tenth]) / tenth, sum(took[-tenth:]) / tenth
    grown = (held[-1] - held[tenth]) / (AGES - tenth) / 1000
    print(f"\nAn update of 32 x 8 turns takes {early:.0f} ms after {tenth} updates, {late:.0f} ms "
          f"after {AGES}; memory grows by {grown:.1f} KB an update.")  # fmt: skip
    play.envs.close()


def with_model() -> None:
    """Print the share of an update that is not spent in the model, with the embedded model."""
    play = Play(32, 8)
    args = play.args
    ranks = make_ranks(args.zero_stage)
    actor_critic, tokenizer, ends = make_model(
        args.generation, args.update, ranks.device, args.seed
    )
    reference = make_reference(args.update, actor_critic)
    agent = make_agent(args.update, actor_critic, ranks, args.seed)
    engine = TransformersEngine(tokenizer, ends, args.response_limit, args.temperature)
    engine.push_weights(actor_critic)
    rollouts, turns = play.rollouts, 32 * 8
    with Stopwatch() as took:
        for _ in range(4):
            batch = play.collected(engine)
            plan = agent.plan(batch)
            batch.score(actor_critic, reference, plan[0])
            batch.compute_returns(make_estimator(args))
            agent.update(batch, plan)
            rollouts.after_update(batch)
    each = took.processor_seconds / 4 / turns * 1000
    print(f"\nWith the embedded model a turn of 32 x 8 takes {each:.2f} ms of processor time.")
    play.envs.close()


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    gc.set_threshold(*GC_THRESHOLDS)  # as main.py does
    overhead()
    ages()
    with_model()


if __name__ == "__main__":
    main()
