"""The table of ratios: each line times two ways of doing one thing, in one run, in turn.

    make bench                         all of them, a few minutes
    python -m benchmarks.run gae       one of them: gae, update, score, logps, envs

Ratios are medians over pairs of runs, so that a machine whose speed drifts does not decide them.
"""

import statistics
import subprocess
import sys
import time
from functools import partial

import torch
from envs.pool.seeds import training_seeds

from arguments import TINY, get_args
from envs import make_env
from envs.pool.vec_env import make_envs
from main import collect
from memory import make_memories
from memory.chat import make_render
from ppo.advantages import dual_discount_gae
from ppo.agent import make_agent
from ppo.engines.lockstep import TransformersEngine
from ppo.model.actor_critic import ActorCritic, Reference
from ppo.model.pretrained import load_lm
from storage.minibatch import MicroBatch
from storage.ranks import ALONE, Ranks
from storage.rollout import RolloutStorage

PAPER = dict(gamma_step=0.99, lam_step=0.95, gamma_token=1.0, lam_token=1.0)


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(name: str, slow, fast, pairs: int, target: float | None) -> None:
    """Print the median ratio slow / fast over `pairs` runs in turn, after one unmeasured pair."""
    slow(), fast()
    times = [(seconds(slow), seconds(fast)) for _ in range(pairs)]
    ratio = statistics.median(a / b for a, b in times)
    a, b = (statistics.median(column) for column in zip(*times, strict=True))
    row(name, f"{a * 1e3:.1f} ms", f"{b * 1e3:.1f} ms", ratio, target)


def row(name: str, a: str, b: str, ratio: float, target: float | None) -> None:
    wanted = f">= {target:g}" if target else ""
    print(f"{name:62s} {a:>12s} {b:>12s} {ratio:8.1f}x  {wanted}", flush=True)


# ---- GAE ------------------------------------------------------------------------------------


def loop_gae(
    rewards, values, mask, next_values, ends, gamma_step, lam_step, gamma_token, lam_token
):
    """The plain way: one step of the recursion per padded token, all environments at once."""
    E, N, T = values.shape
    advantages = torch.zeros_like(values)
    later_advantage, later_value = torch.zeros(N), next_values[-1]
    for t in reversed(range(E)):
        later_advantage = torch.where(ends[t], 0.0, later_advantage)
        later_value, last = next_values[t], torch.ones(N, dtype=torch.bool)
        for k in reversed(range(T)):
            here = mask[t, :, k]
            gamma = torch.where(last, gamma_step, gamma_token)
            lam = torch.where(last, lam_step, lam_token)
            delta = rewards[t, :, k] + gamma * later_value - values[t, :, k]
            now = delta + gamma * lam * later_advantage
            advantages[t, :, k] = torch.where(here, now, 0.0)
            later_advantage = torch.where(here, now, later_advantage)
            later_value = torch.where(here, values[t, :, k], later_value)
            last = last & ~here
    return advantages


def bench_gae() -> None:
    E, N, T = 8, 32, 512
    torch.manual_seed(0)
    mask = torch.arange(T) < torch.randint(1, T + 1, (E, N, 1))
    values = torch.rand(E, N, T) * mask
    batch = torch.rand(E, N, T) * mask, values, mask, torch.rand(E, N), torch.rand(E, N) < 0.1
    assert torch.allclose(
        loop_gae(*batch, **PAPER), dual_discount_gae(*batch, **PAPER)[0], atol=1e-2, rtol=1e-3
    )
    slow, fast = partial(loop_gae, *batch, **PAPER), partial(dual_discount_gae, *batch, **PAPER)
    compare(f"GAE, N={N} E={E} T={T}: token loop / ours", slow, fast, 5, target=50)


# ---- update ---------------------------------------------------------------------------------


def babyai_batch(argv: list[str], ranks: Ranks = ALONE):
    """Args, agent and a scored storage of real BabyAI turns of the embedded model."""
    args = get_args(["--env-name", "babyai-goto", "--model", str(TINY), *argv])
    lm, tokenizer, ends = load_lm(args.model, "cpu")
    packed = args.packed == "on"
    actor_critic = ActorCritic(lm, args.critic_layers, 1.0, packed=packed)
    reference = Reference(lm, 1.0)
    engine = TransformersEngine(tokenizer, ends, args.response_limit, 1.0)
    engine.push_weights(actor_critic)
    envs = make_envs(args, training_seeds(1, ranks.share(args.n_env)))
    rollouts = RolloutStorage(args.e_len, args.n_env, args.token_budget, ranks)
    render = make_render(tokenizer, args.prompt_limit)
    memories = make_memories(args, envs.resume(None))
    collect(envs, memories, engine, render, rollouts, args.seed)
    rollouts.score(actor_critic, reference)
    rollouts.compute_returns(partial(dual_discount_gae, **PAPER), False)
    return args, make_agent(args, actor_critic, ranks), rollouts


class PaddedStorage:
    """A storage whose micro-batches are padded: prompts on the left to prompt_width, responses on
    the right to response_width (the fixed layout of trainers that pad to their limits)."""

    def __init__(self, rollouts, prompt_width: int | None, response_width: int | None, rows: int):
        self.rollouts, self.rows = rollouts, rows
        self.widths = prompt_width, response_width

    def __getattr__(self, name):
        return getattr(self.rollouts, name)

    def batches(self, rows):
        responses = [r for turn in self.rollouts.responses for r in turn]
        prompt_width = self.widths[0] or max(len(responses[row].prompt.ids) for row in rows)
        response_width = self.widths[1] or max(len(responses[row].ids) for row in rows)
        for start in range(0, len(rows), self.rows):
            part = rows[start : start + self.rows]
            ids = torch.zeros(len(part), prompt_width + response_width, dtype=torch.long)
            mask = torch.zeros_like(ids, dtype=torch.bool)
            for b, row in enumerate(part):
                prompt, response = responses[row].prompt.ids, responses[row].ids
                ids[b, prompt_width - len(prompt) : prompt_width] = torch.tensor(prompt)
                ids[b, prompt_width : prompt_width + len(response)] = torch.tensor(response)
                mask[b, prompt_width : prompt_width + len(response)] = True
            rows_tensor = torch.tensor(part)
            yield (
                MicroBatch(rows_tensor, ids, mask),
                self.rollouts.response_mask.flatten(0, 1)[rows_tensor],
            )


def bench_update() -> None:
    """Both sides do the same work on the same turns; only padding differs (left padding is not
    masked here: it costs what it costs, and the numbers of these updates are thrown away)."""
    args, agent, rollouts = babyai_batch(["--ppo-epoch", "1"])
    limits = PaddedStorage(rollouts, 1024, 512, rows=10)  # the paper's limits, same token budget
    longest = PaddedStorage(rollouts, None, None, rows=128)
    ours = partial(agent.update, rollouts)
    name = f"update of {args.n_env * args.e_len} BabyAI turns"
    compare(
        f"{name}: padded to 1024 + 512 / token budget", partial(agent.update, limits), ours, 3, 5
    )
    compare(
        f"{name}: padded to the longest / token budget",
        partial(agent.update, longest),
        ours,
        5,
        None,
    )


def bench_score() -> None:
    """What --tis-cap saves: values alone against log-probs and values; both score the reference."""
    args, agent, rollouts = babyai_batch([])
    reference = Reference(agent.actor_critic.lm, 1.0)
    score = partial(rollouts.score, agent.actor_critic, reference)
    name = f"scoring {args.n_env * args.e_len} BabyAI turns: own / the engine's log-probs"
    compare(name, score, partial(score, trust_engine=True), 5, None)


# ---- log-prob memory ------------------------------------------------------------------------

PEAK = """
import sys, torch
from types import SimpleNamespace
from ppo.model import decoder
from benchmarks.run import peak_bytes
chunked, tokens, V, D = sys.argv[1] == "chunked", 4096, 151_936, 64
head = torch.nn.Linear(D, V, bias=False)
lm = SimpleNamespace(lm_head=head, config=SimpleNamespace(vocab_size=V))
if not chunked:
    decoder.LOGITS_PER_CHUNK = 2**62
hidden = torch.randn(tokens, D, requires_grad=True)
head.weight.grad = torch.zeros_like(head.weight)
before = peak_bytes()
logps, _ = decoder.token_logps(lm, hidden, torch.randint(V, (tokens,)), 1.0)
logps.sum().backward()
print(peak_bytes() - before)
"""


def peak_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def bench_logps() -> None:
    """Peak memory of log-probs, forward and backward, of 4,096 tokens over 151,936 words."""
    peaks = {}
    for way in ("full", "chunked"):
        output = subprocess.run([sys.executable, "-c", PEAK, way], capture_output=True, text=True)
        assert output.returncode == 0, output.stderr
        peaks[way] = int(output.stdout)
    full, chunked = (peaks[way] / 2**30 for way in ("full", "chunked"))
    name = "log-prob peak memory, 4096 tokens, V=151,936: full / chunked"
    row(name, f"{full:.2f} GiB", f"{chunked:.2f} GiB", full / chunked, target=4)


# ---- environments ---------------------------------------------------------------------------


def bench_envs() -> None:
    """Steps per second of one process, text included, random valid actions, resets included."""
    print()
    for name in (
        "babyai-goto",
        "babyai-open",
        "baba-goto_win",
        "baba-two_room-goto_win",
        "crafter",
    ):
        env, steps = make_env(name), 300 if name == "crafter" else 3000
        rng = torch.Generator().manual_seed(0)
        choices = torch.randint(len(env.actions), (steps,), generator=rng).tolist()
        env.reset(seed=0)

        def play(env=env, choices=choices):
            for choice in choices:
                response = f"THINK: go.\nACTION: {env.actions[choice]}"
                _, _, terminated, truncated, _ = env.step(response)
                if terminated or truncated:
                    env.reset()

        print(f"{name:30s} {steps / seconds(play):10,.0f} steps/s", flush=True)


BENCHMARKS = {
    "gae": bench_gae,
    "update": bench_update,
    "score": bench_score,
    "logps": bench_logps,
    "envs": bench_envs,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        sys.exit(f"unknown benchmark {', '.join(unknown)}; choices: {', '.join(BENCHMARKS)}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    print(f"{'what: A / B':62s} {'A':>12s} {'B':>12s} {'A / B':>9s}  target")
    for name in names:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
