"""Times scoring and updates on turns of the embedded model. `benchmarks.run` starts it."""

import statistics
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial

import torch

from arguments import get_args
from benchmarks.common import compare, seconds
from common.estimator import GROUPED
from common.wrapper import Wrapper
from envs.pool.groups import group_seeds
from envs.pool.make import make_envs
from main import collect
from memory import make_memories
from memory.render import Renderer
from ppo.advantages import ESTIMATORS, make_estimator
from ppo.agent import Agent
from ppo.distributed import make_ranks
from ppo.engines.lockstep import TransformersEngine
from ppo.make import make_agent
from ppo.model import decoder
from ppo.model.actor_critic import Reference
from ppo.model.make import make_model, make_reference
from recipes import MODELS, TINY
from storage.batch import Batch
from storage.engine_scores import engine_scores
from storage.make import LAYOUTS, make_storage
from storage.merged import share_saved
from storage.minibatch import MicroBatch

FROZEN = ["--lr", "0", "--critic-lr", "0"]  # so that every update does the same work


def scored_batch(flags: list[str]) -> tuple[Agent, Batch]:
    """Return an agent and a scored batch. Flags override BabyAI goto and the embedded model."""
    args = get_args(["--env-name", "babyai-goto", "--model", str(TINY), *flags])
    ranks = make_ranks(args.zero_stage)
    generation, update = args.generation, args.update
    actor_critic, tokenizer, ends = make_model(generation, update, ranks.device, args.seed)
    reference = make_reference(update, actor_critic)
    # The weights are not sharded yet, so this engine works with every ZeRO stage.
    engine = TransformersEngine(tokenizer, ends, args.response_limit, args.temperature)
    engine.push_weights(actor_critic)
    seeds = group_seeds(1, ranks.share(args.n_env), args.group_size)
    envs = make_envs(args.environment, generation, seeds)
    memories = make_memories(args.environment, envs.resume(None))
    render = Renderer(tokenizer, args.prompt_limit)
    rollouts = make_storage(args.batch, update, ranks)
    batch = collect(envs, memories, engine, render, rollouts, args.seed)
    agent = make_agent(update, actor_critic, ranks, args.seed)
    batch.score(actor_critic, reference, agent.plan(batch)[0])
    batch.compute_returns(make_estimator(update))
    return agent, batch


def train(agent: Agent, batch: Batch) -> None:
    agent.update(batch, agent.plan(batch))


def score_and_update(agent: Agent, batch: Batch) -> None:
    reference, plan = Reference(agent.actor_critic.lm), agent.plan(batch)
    batch.score(agent.actor_critic, reference, plan[0])
    agent.update(batch, plan)


def bench_estimators() -> None:
    """Print what each estimator costs per update, on the same whole episodes.

    The target is that the advantages take less than 1 % of scoring, advantages and update together.
    Estimators without a critic run on a batch that has no values.
    """
    flags = ["--group-size", "8", "--max-episode-steps", "32"]
    agent, batch = scored_batch([*flags, "--w-epoch", "0"])
    actor_alone, without_values = scored_batch([*flags, "--advantages", "rloo"])  # same episodes
    print(f"{len(batch.rows)} turns in whole episodes of {batch.n_env} environments")
    for name in ESTIMATORS:
        if name in GROUPED:
            time_estimator(name, flags, actor_alone, without_values)
        else:
            time_estimator(name, flags, agent, batch)


def time_estimator(name: str, flags: list[str], agent: Agent, batch: Batch) -> None:
    """Print the median times of scoring, advantages and update over three rounds."""
    args = get_args(["--advantages", name, "--model", str(TINY), *flags])
    actor_critic, reference = agent.actor_critic, Reference(agent.actor_critic.lm)
    score = partial(batch.score, actor_critic, reference, [list(batch.rows)])
    advantages = partial(batch.compute_returns, make_estimator(args.update))
    score(), advantages()  # once, not timed
    scores, estimates, updates = [], [], []
    for _ in range(3):
        scores.append(seconds(score))
        estimates.append(seconds(advantages))
        updates.append(seconds(partial(train, agent, batch)))
    a, b, c = statistics.median(scores), statistics.median(estimates), statistics.median(updates)
    share = b / (a + b + c)
    print(f"{name:10s} score {a:6.2f} s  advantages {b * 1e3:6.1f} ms ({share:.2%})  "
          f"update {c:6.2f} s", flush=True)  # fmt: skip


def bench_merged() -> None:
    """Compare one row per turn with merged turns, which share a row.

    The window memory changes earlier text, so its turns cannot be merged and the ratio is near 1.
    """
    sizes = ["--n-env", "8", "--e-len", "32", "--prompt-limit", "2048", "--minibatch", "128"]
    for memory in ("full", "window"):
        agent, merged = scored_batch(["--memory", memory, *sizes, *FROZEN])
        padded = copy(merged)
        merged.layout = LAYOUTS["auto"](merged.samples, merged.n_env)
        padded.layout = LAYOUTS["padded"](padded.samples, padded.n_env)
        prompts = sum(len(sample.prompt) for sample in merged.samples) // len(merged.samples)
        saved = share_saved(merged.samples, merged.layout, agent.plan(merged)[0])
        print(f"{memory} memory, E=32: {prompts} prompt tokens per turn, {saved:.0%} saved")
        compare(
            f"score and update, {memory} memory, E=32: separate / merged",
            partial(score_and_update, agent, padded),
            partial(score_and_update, agent, merged),
            pairs=3,
            target=4 if memory == "full" else None,
        )


class PaddedBatch(Wrapper):
    """A batch whose micro-batches are padded to fixed limits, as in many trainers.

    prompt_width: tokens to which prompts are padded on the left; None: the longest of a minibatch
    response_width: the same for responses, on the right
    size: turns of a micro-batch
    """

    def __init__(self, batch, prompt_width: int | None, response_width: int | None, size: int):
        super().__init__(batch)
        self.size = size
        self.prompt_width, self.response_width = prompt_width, response_width

    def micro_batches(self, rows):
        responses = [r for turn in self.responses for r in turn]
        begin = self.prompt_width or max(len(responses[row].prompt.ids) for row in rows)
        width = begin + (self.response_width or max(len(responses[row].ids) for row in rows))
        for part in torch.tensor(rows).split(self.size):
            ids = torch.zeros(len(part), width, dtype=torch.long)
            mask = torch.zeros_like(ids, dtype=torch.bool)
            for b, row in enumerate(part):
                prompt, response = responses[row].prompt.ids, responses[row].ids
                end = begin + len(response)
                ids[b, begin - len(prompt) : end] = torch.tensor(prompt + response)
                mask[b, begin:end] = True
            ids, mask = ids.to(self.device), mask.to(self.device)
            tokens = ids[mask]
            yield MicroBatch(part, ids, mask, tokens, torch.ones(len(tokens), device=ids.device))


def bench_update() -> None:
    """Compare two ways of padding with the token budget, on the same turns.

    Padding on the left is not masked. This changes the results of the updates but not their cost,
    and the results are not used.
    """
    agent, batch = scored_batch(["--ppo-epoch", "1"])
    name = f"update of {batch.e_len * batch.n_env} BabyAI turns"
    budget = partial(train, agent, batch)
    limits = PaddedBatch(batch, 1024, 512, size=10)  # the paper's limits, the same token budget
    slow = partial(train, agent, limits)
    compare(f"{name}: padded to 1024 + 512 / token budget", slow, budget, pairs=3, target=5)
    longest = PaddedBatch(batch, None, None, size=128)
    slow = partial(train, agent, longest)
    compare(f"{name}: padded to the longest / token budget", slow, budget, pairs=5)


def bench_score() -> None:
    """Show what --tis-cap saves: the actor's log-probs. Both sides score the reference."""
    agent, batch = scored_batch([])
    from_engine = copy(batch)
    from_engine.scoring = replace(batch.scoring, old_scores=engine_scores)
    reference, minibatches = Reference(agent.actor_critic.lm), [batch.rows]
    compare(
        f"scoring {len(batch.rows)} BabyAI turns: the trainer's / the engine's log-probs",
        partial(batch.score, agent.actor_critic, reference, minibatches),
        partial(from_engine.score, agent.actor_critic, reference, minibatches),
        pairs=5,
    )


def bench_top() -> None:
    """Compare top layers that compute all tokens with MLPs that compute response tokens only."""
    crafter = ["--env-name", "crafter", "--model", str(MODELS / "tiny-crafter")]
    for name, flags in (("BabyAI", []), ("Crafter", crafter)):
        agent, batch = scored_batch([*flags, *FROZEN])
        ours = partial(score_and_update, agent, batch)
        name = f"score and update {len(batch.rows)} {name} turns: all tokens / ours"
        compare(name, partial(with_whole_layers, ours), ours, pairs=5)


def with_whole_layers(work: Callable[[], None]) -> None:
    """Run `work` with a decoder that takes no layer for a plain one, so that all run whole."""
    parts, decoder.PARTS = decoder.PARTS, set()
    work()
    decoder.PARTS = parts
