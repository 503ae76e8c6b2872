"""Compares the measured peak memory of scoring and updating with what `turnwise fit` says.

    python -m benchmarks.memory

Each row runs in its own process: a random Qwen2 of 6 to 24 M parameters scores and updates once, on
16 turns of full length in two minibatches. On a CPU the peak is the high-water mark of the
resident set, minus what the process holds after the same work on a smaller model (mostly
libraries). On CUDA the peak is that of the allocator. Generation is not measured.
"""

import gc
import json
from dataclasses import replace
from types import SimpleNamespace

import torch

import ppo.model.decoder
import run.estimate.activations
from arguments import get_args
from benchmarks.common import proc_bytes, random_lm, run_python
from common.cli import Parser
from common.ranks import ALONE
from memory.render import Prompt
from ppo.advantages import make_estimator
from ppo.engines.contract import Response
from ppo.make import make_agent
from ppo.model.actor_critic import Reference
from ppo.model.make import build
from run.estimate.memory import totals
from run.estimate.setting import Setting
from run.estimate.shape import Shape
from storage.batch import Batch, Scoring
from storage.collection import Collection, FixedTurns

TURNS, PROMPT, RESPONSE = 16, 128, 128
CHUNK = 2**22  # logits of a block: so few that there are several blocks
ROWS = [
    dict(token_budget=1024),
    dict(token_budget=512),
    dict(token_budget=1024, gradient_checkpointing=True),
    dict(token_budget=256, vocab=32768, n_layers=4),
    dict(token_budget=256, vocab=32768, n_layers=4, tied=True),
    dict(token_budget=1024, n_layers=4, itemsize=2),  # slow on a CPU without bf16
    dict(token_budget=1024, n_layers=4, itemsize=2, gradient_checkpointing=True),
]
# Returns freed memory to the system at once, so that it no longer counts.
MALLOC = dict(MALLOC_ARENA_MAX="1", MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="0")


def main() -> None:
    parser = Parser("benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument(
        "row",
        nargs="?",
        type=json.loads,
        help="measure only this row, given as JSON, in this process",
    )
    row = parser.parse_args().row
    if row is not None:
        return print(json.dumps(measure(**row)))
    print(f"torch {torch.__version__}, cuda: {torch.cuda.is_available()}")
    print(f"{'setting':58s} {'measured':>10s} {'estimated':>10s} {'ratio':>6s}")
    for row in map(json.dumps, ROWS):
        found = json.loads(run_python(["-m", "benchmarks.memory", row], MALLOC))
        measured, estimated = found["measured"] / 1e6, found["estimated"] / 1e6
        sizes = f"{measured:7.0f} MB {estimated:7.0f} MB {estimated / measured:6.2f}"
        print(f"{row:58s} {sizes} {found['moment']}", flush=True)


def measure(vocab=4096, n_layers=12, tied=False, **changes) -> dict[str, float | str]:
    """Return the measured and the estimated peak of this process in bytes, and its moment.

    changes: fields of `Setting`
    """
    ppo.model.decoder.LOGITS_PER_CHUNK = run.estimate.activations.LOGITS_PER_CHUNK = CHUNK
    cuda, device = torch.cuda.is_available(), ALONE.device
    setting = Setting(1, PROMPT + RESPONSE, PROMPT, RESPONSE, n_env=1, cuda=cuda)
    setting = replace(setting, **changes)
    train(make_lm(64, 256, 2, False), replace(setting, token_budget=PROMPT + RESPONSE), device)
    gc.collect()
    before = proc_bytes("VmRSS")
    lm = make_lm(vocab, 256, n_layers, tied)
    shape = Shape(lm)
    train(lm.to(device), setting, device)
    measured = torch.cuda.max_memory_allocated() if cuda else proc_bytes("VmHWM") - before
    sums = totals(shape, setting)
    del sums["generate"]
    moment = max(sums, key=sums.get)
    return dict(measured=measured, estimated=sums[moment], moment=moment)


def make_lm(vocab: int, hidden: int, n_layers: int, tied: bool):
    return random_lm(
        torch.float32, vocab_size=vocab, hidden_size=hidden, intermediate_size=11 * hidden // 4,
        num_hidden_layers=n_layers, num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128, tie_word_embeddings=tied,
    )  # fmt: skip


def train(lm, setting: Setting, device: str) -> None:
    """Make an update of two steps; each step has at least two micro-batches."""
    args = get_args(["--env-name", "toy", "--ppo-epoch", "1", "--minibatch", str(TURNS // 2)])
    half = setting.itemsize == 2
    dtype, packed = torch.bfloat16 if half else torch.float32, half and setting.cuda
    options = dict(dtype=dtype, recompute=setting.gradient_checkpointing, packed=packed)
    model = build(lm, setting.critic_layers, **options).to(device)
    reference = Reference(lm, model.compute)
    agent = make_agent(args.update, model, ALONE, args.seed)
    batch = fill(setting, lm.config.vocab_size)
    plan = agent.plan(batch)
    batch.score(model, reference, plan[0])
    batch.compute_returns(make_estimator(args.update))
    agent.update(batch, plan)


def fill(setting: Setting, vocab: int) -> Batch:
    """Make a batch of turns of full length, as the estimate assumes."""
    rollouts = Collection(TURNS, FixedTurns(1), Scoring(setting.token_budget))
    for n in range(TURNS):
        prompt = Prompt(torch.randint(vocab, (PROMPT,)).tolist())
        ids = torch.randint(vocab, (RESPONSE,)).tolist()
        step = SimpleNamespace(
            reward=float(n % 2), done=True, terminated=True, truncated=False, fault="", number=1,
            seed=n, episode=0, previous_digest="", success=False, metrics={},
        )  # fmt: skip
        logps = [-1.0] * RESPONSE
        rollouts.keep_response(n, Response(prompt, ids, logps, text="", pieces=[], truncated=False))
        rollouts.insert(n, step)
        rollouts.finish(n, prompt)
    return rollouts.join()


if __name__ == "__main__":
    main()
