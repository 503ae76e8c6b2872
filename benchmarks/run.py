"""Prints a table of ratios: each line compares two ways of doing one thing.

    make bench                         all of them, a few minutes
    python -m benchmarks.run gae       one of them: gae, estimators, merged, update, score, top,
    logps, envs

Times are compared in pairs of runs, so that a machine whose speed drifts does not decide a ratio.
"""

import statistics
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch
from minigrid.minigrid_env import MiniGridEnv

from arguments import get_args
from benchmarks.common import GB, Stopwatch, medians, proc_bytes, run_python, seconds
from common.cli import Parser
from common.wrapper import Wrapper
from envs import make_env
from envs.pool.groups import episode_seeds
from envs.pool.make import make_envs
from main import collect
from memory import make_memories
from memory.render import Renderer
from ppo.advantages import ESTIMATORS, make_estimator
from ppo.advantages import Batch as EstimatorBatch
from ppo.advantages.gae import dual_gae
from ppo.agent import Agent
from ppo.distributed import make_ranks
from ppo.engines.lockstep import TransformersEngine
from ppo.make import make_agent
from ppo.model import decoder
from ppo.model.actor_critic import Reference
from ppo.model.make import make_model, make_reference
from recipes import MODELS, TINY
from run.checks import GROUPED
from storage.batch import Batch
from storage.engine_scores import engine_scores
from storage.make import LAYOUTS, make_storage
from storage.merged import share_saved
from storage.minibatch import MicroBatch


def main() -> None:
    parser = Parser("benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"{', '.join(BENCHMARKS)}; default: all")
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"unknown benchmark {', '.join(unknown)}; choices: {', '.join(BENCHMARKS)}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    print(f"{'what: A / B':62s} {'A':>12s} {'B':>12s} {'A / B':>9s}  target")
    for name in names:
        BENCHMARKS[name]()


def compare(name: str, slow, fast, pairs: int, target: float | None = None) -> None:
    """Print the median ratio slow / fast over `pairs` runs in turn, after one unmeasured pair."""
    slow(), fast()
    a, b, ratio = medians([(seconds(slow), seconds(fast)) for _ in range(pairs)])
    print_row(name, f"{a * 1e3:.1f} ms", f"{b * 1e3:.1f} ms", ratio, target)


def print_row(name: str, a: str, b: str, ratio: float, target: float | None) -> None:
    wanted = f">= {target:g}" if target else ""
    print(f"{name:62s} {a:>12s} {b:>12s} {ratio:8.1f}x  {wanted}", flush=True)


# ---- GAE ------------------------------------------------------------------------------------


def bench_gae() -> None:
    E, N, T = 8, 32, 512
    torch.manual_seed(0)
    mask = torch.arange(T) < torch.randint(1, T + 1, (E, N, 1))
    values = torch.rand(E, N, T) * mask
    batch = EstimatorBatch(
        rewards=torch.rand(E, N, T) * mask, values=values, response_mask=mask,
        next_values=torch.rand(E, N), episode_ends=torch.rand(E, N) < 0.1,
        steps=[],
        gamma_step=0.99, lam_step=0.95, gamma_token=1.0, lam_token=1.0,
    )  # fmt: skip
    assert torch.allclose(loop_gae(batch), dual_gae(batch)[0], atol=1e-2, rtol=1e-3)
    slow, fast = partial(loop_gae, batch), partial(dual_gae, batch)
    compare(f"GAE, N={N} E={E} T={T}: token loop / ours", slow, fast, pairs=5, target=50)


def loop_gae(batch: EstimatorBatch) -> torch.Tensor:
    """Take one step of the recursion per padded token, for all environments at once."""
    E, N, T = batch.values.shape
    advantages = torch.zeros_like(batch.values)
    later_advantage = torch.zeros(N)
    for t in reversed(range(E)):
        later_advantage = torch.where(batch.episode_ends[t], 0.0, later_advantage)
        later_value, last = batch.next_values[t], torch.ones(N, dtype=torch.bool)
        for k in reversed(range(T)):
            here, value = batch.response_mask[t, :, k], batch.values[t, :, k]
            gamma = torch.where(last, batch.gamma_step, batch.gamma_token)
            lam = torch.where(last, batch.lam_step, batch.lam_token)
            delta = batch.rewards[t, :, k] + gamma * later_value - value
            now = delta + gamma * lam * later_advantage
            advantages[t, :, k] = torch.where(here, now, 0.0)
            later_advantage = torch.where(here, now, later_advantage)
            later_value = torch.where(here, value, later_value)
            last = last & ~here
    return advantages


# ---- estimators -----------------------------------------------------------------------------


def bench_estimators() -> None:
    """Print what an update costs with each estimator, all on the same whole episodes, and the
    share that its advantages take (target: below 1 %). Those without a critic have no values to
    compute; the times of scoring and of the update are added up."""
    flags = "--group-size 8 --max-episode-steps 32".split()
    agent, rollouts = scored_batch([*flags, "--w-epoch", "0"])
    alone, without = scored_batch([*flags, "--advantages", "rloo"])  # the same episodes
    lm = agent.actor_critic.lm
    print(f"{len(rollouts.rows)} turns of {rollouts.n_env} whole episodes or more")
    for name in ESTIMATORS:
        no_critic = name in GROUPED
        storage, learner = (without, alone) if no_critic else (rollouts, agent)
        args = get_args(["--advantages", name, "--model", str(TINY), *flags])
        estimate, reference = make_estimator(args), Reference(lm)
        score = partial(storage.score, learner.actor_critic, reference, [list(storage.rows)])
        returns = partial(storage.compute_returns, estimate)
        work = (score, returns, partial(_update, learner, storage))
        score(), returns()  # once, unmeasured
        rounds = [[seconds(part) for part in work] for _ in range(3)]
        parts = [statistics.median(column) for column in zip(*rounds, strict=True)]
        total = sum(parts)
        print(f"{name:10s} score {parts[0]:6.2f} s  advantages {parts[1] * 1e3:6.1f} ms "
              f"({parts[1] / total:.2%})  update {parts[2]:6.2f} s", flush=True)  # fmt: skip


# ---- batches --------------------------------------------------------------------------------


def scored_batch(argv: list[str]) -> tuple[Agent, Batch]:
    """Return an agent and a scored batch of turns: BabyAI's with the embedded model, unless argv
    has other flags."""
    args = get_args(["--env-name", "babyai-goto", "--model", str(TINY), *argv])
    ranks = make_ranks(args.zero_stage)
    actor_critic, tokenizer, ends = make_model(
        args.generation, args.update, ranks.device, args.seed
    )
    reference = make_reference(args.update, actor_critic)
    # The weights are not sharded yet, so that this engine serves all ZeRO stages.
    engine = TransformersEngine(tokenizer, ends, args.response_limit, args.temperature)
    engine.push_weights(actor_critic)
    seeds = episode_seeds(1, ranks.share(args.n_env), args.group_size)
    envs = make_envs(args.environment, args.generation, seeds)
    memories = make_memories(args, envs.resume(None))
    render = Renderer(tokenizer, args.prompt_limit)
    rollouts = make_storage(args.batch, args.update, ranks)
    batch = collect(envs, memories, engine, render, rollouts, args.seed)
    agent = make_agent(args.update, actor_critic, ranks, args.seed)
    batch.score(actor_critic, reference, agent.plan(batch)[0])
    batch.compute_returns(make_estimator(args))
    return agent, batch


def _update(agent: Agent, batch: Batch) -> dict[str, float | None]:
    return agent.update(batch, agent.plan(batch))


# ---- merged turns ---------------------------------------------------------------------------


def bench_merged() -> None:
    """Compare turns in rows of their own with merged ones: scoring and an update of equal turns.
    Where the window memory merges nothing, both sides do the same."""
    for memory in ("full", "window"):
        flags = f"--memory {memory} --n-env 8 --e-len 32 --prompt-limit 2048 --minibatch 128"
        agent, merged = scored_batch([*flags.split(), "--lr", "0", "--critic-lr", "0"])
        alone = copy(merged)
        for rollouts, merge in ((merged, "auto"), (alone, "padded")):
            rollouts.layout = LAYOUTS[merge](rollouts.samples, rollouts.n_env)
        work = partial(_score_and_update, agent)
        prompts = sum(len(sample.prompt) for sample in merged.samples) // len(merged.samples)
        saved = share_saved(merged.samples, merged.layout, agent.plan(merged)[0])
        print(f"{memory} memory, E=32: {prompts} prompt tokens a turn, of which {saved:.0%} saved")
        name = f"score and update, {memory} memory, E=32: alone / merged"
        target = 4 if memory == "full" else None
        compare(name, partial(work, alone), partial(work, merged), pairs=3, target=target)


def _score_and_update(agent: Agent, batch: Batch) -> None:
    reference, plan = Reference(agent.actor_critic.lm), agent.plan(batch)
    batch.score(agent.actor_critic, reference, plan[0])
    agent.update(batch, plan)


# ---- update ---------------------------------------------------------------------------------


class PaddedStorage(Wrapper):
    """A storage with padded micro-batches: the fixed layout of trainers that pad to their limits.

    prompt_width: tokens to which prompts are padded on the left; None: the longest of a minibatch
    response_width: the same for responses, on the right; size: turns of a micro-batch
    """

    def __init__(self, rollouts, prompt_width: int | None, response_width: int | None, size: int):
        super().__init__(rollouts)
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
    """Compare the padding. Both sides do the same work on the same turns.

    Padding on the left is not masked, which changes the numbers of these updates but not their
    cost; the numbers are thrown away.
    """
    agent, rollouts = scored_batch(["--ppo-epoch", "1"])
    name = f"update of {rollouts.e_len * rollouts.n_env} BabyAI turns"
    ours = partial(_update, agent, rollouts)
    limits = PaddedStorage(rollouts, 1024, 512, size=10)  # the paper's, same token budget
    slow = partial(_update, agent, limits)
    compare(f"{name}: padded to 1024 + 512 / token budget", slow, ours, pairs=3, target=5)
    longest = PaddedStorage(rollouts, None, None, size=128)
    slow = partial(_update, agent, longest)
    compare(f"{name}: padded to the longest / token budget", slow, ours, pairs=5)


def bench_score() -> None:
    """Show what --tis-cap saves: the actor's log-probs. Both sides score the reference."""
    agent, rollouts = scored_batch([])
    trusting = copy(rollouts)
    trusting.scoring = replace(rollouts.scoring, old_scores=engine_scores)
    reference, minibatches = Reference(agent.actor_critic.lm), [rollouts.rows]
    own, engine = (
        partial(storage.score, agent.actor_critic, reference, minibatches)
        for storage in (rollouts, trusting)
    )
    name = f"scoring {len(rollouts.rows)} BabyAI turns: own / the engine's log-probs"
    compare(name, own, engine, pairs=5)


def bench_top() -> None:
    """Compare top layers that run whole with ours, whose MLPs run at the response tokens alone."""
    crafter = ["--env-name", "crafter", "--model", str(MODELS / "tiny-crafter")]
    for name, flags in (("BabyAI", []), ("Crafter", crafter)):
        agent, rollouts = scored_batch([*flags, "--lr", "0", "--critic-lr", "0"])
        ours = partial(_score_and_update, agent, rollouts)
        name = f"score and update {len(rollouts.rows)} {name} turns: top layers whole / ours"
        compare(name, partial(_with_whole_layers, ours), ours, pairs=5)


def _with_whole_layers(work: Callable[[], None]) -> None:
    parts, decoder.PARTS = decoder.PARTS, set()
    work()
    decoder.PARTS = parts


# ---- log-prob memory ------------------------------------------------------------------------


def bench_logps() -> None:
    """Compare the peak memory of log-probs, forward and backward, in two processes."""
    script = "from benchmarks.run import logps_peak; print(logps_peak(chunked={}))"
    full = int(run_python("-c", script.format(False))) / GB
    chunked = int(run_python("-c", script.format(True))) / GB
    name = "log-prob peak memory, 4096 tokens, V=151,936: full / chunked"
    print_row(name, f"{full:.2f} GiB", f"{chunked:.2f} GiB", full / chunked, target=4)


def logps_peak(chunked: bool) -> int:
    """Return the bytes by which log-probs of 4,096 tokens over 151,936 words raise the peak."""
    tokens, V, D = 4096, 151_936, 64
    head = torch.nn.Linear(D, V, bias=False)
    lm = SimpleNamespace(lm_head=head, config=SimpleNamespace(vocab_size=V))
    if not chunked:
        decoder.LOGITS_PER_CHUNK = 2**62
    hidden = torch.randn(tokens, D, requires_grad=True)
    head.weight.grad = torch.zeros_like(head.weight)
    before = proc_bytes("VmHWM")
    logps, _ = decoder.token_logps(lm, hidden, torch.randint(V, (tokens,)), torch.ones(tokens))
    logps.sum().backward()
    return proc_bytes("VmHWM") - before


# ---- environments ---------------------------------------------------------------------------


def bench_envs() -> None:
    """Print the steps per second of one process with random actions, text and resets included."""
    print()
    names = "babyai-goto babyai-open baba-goto_win baba-two_room-goto_win crafter"
    for name in names.split():
        steps = 300 if name == "crafter" else 3000
        turns = random_turns(make_env(name), steps)
        with Stopwatch() as took:
            turns()
        print(f"{name:30s} {steps / took.seconds:10,.0f} steps/s", flush=True)
    for name in ("babyai-goto", "babyai-open"):
        with_minigrids_view = make_env(name)
        level = with_minigrids_view.level
        level.gen_obs = partial(MiniGridEnv.gen_obs, level)
        slow, fast = random_turns(with_minigrids_view, 1000), random_turns(make_env(name), 1000)
        compare(f"1,000 turns of {name}: minigrid's view / ours", slow, fast, pairs=9)


def random_turns(env, steps: int) -> Callable[[], None]:
    """Return a function that takes `steps` random turns, always the same ones."""
    rng = torch.Generator().manual_seed(0)
    choices = torch.randint(len(env.actions), (steps,), generator=rng).tolist()

    def play() -> None:
        env.reset(seed=0)
        for choice in choices:
            _, _, terminated, truncated, _ = env.step(f"THINK: go.\nACTION: {env.actions[choice]}")
            if terminated or truncated:
                env.reset()

    return play


BENCHMARKS = dict(
    gae=bench_gae,
    estimators=bench_estimators,
    merged=bench_merged,
    update=bench_update,
    score=bench_score,
    top=bench_top,
    logps=bench_logps,
    envs=bench_envs,
)


if __name__ == "__main__":
    main()
