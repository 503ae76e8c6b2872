"""Compares the measured peak memory of scoring and updating with what `turnwise fit` says.

    python -m benchmarks.memory                         on a CPU, or on a GPU if there is one
    python tests/fake_cuda -m benchmarks.memory         on a GPU that the host stands in for

Each row is a run of its own: a random Qwen2 of 5 to 24 M parameters scores and makes two steps,
twice, on turns of full length. On a GPU the peaks are those of the allocator, at each moment of the
estimate, and rows with ranks start as many processes. On a CPU the only peak is the high-water mark
of the resident set, minus what the process holds after the same work on a smaller model (mostly
libraries). Generation is not measured.
"""

import gc
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import torch

import ppo.distributed
import ppo.model.decoder
import run.estimate.activations
import run.estimate.zero
from arguments import get_args
from benchmarks.common import proc_bytes, random_lm, run_python
from common.cli import Parser
from common.ranks import ALONE
from memory.render import Prompt
from ppo.advantages import make_estimator
from ppo.distributed import make_ranks
from ppo.engines.contract import Response
from ppo.make import make_agent
from ppo.model.make import build, make_reference
from run.estimate.memory import totals
from run.estimate.setting import Setting
from run.estimate.shape import Shape
from storage.batch import Batch, Scoring
from storage.collection import Collection, FixedTurns

CHUNK = 2**22  # logits of a block: so few that there are several blocks
BUCKET, LIVE = (
    2**19,
    2**19,
)  # of DeepSpeed: so few that a small model exceeds them, as large ones do
ON_A_CPU = [
    dict(token_budget=1024),
    dict(token_budget=512),
    dict(token_budget=1024, gradient_checkpointing=True),
    dict(token_budget=256, vocab=32768, n_layers=4),
    dict(token_budget=256, vocab=32768, n_layers=4, tied=True),
    dict(token_budget=1024, n_layers=4, itemsize=2),  # slow on a CPU without bf16
    dict(token_budget=1024, n_layers=4, itemsize=2, gradient_checkpointing=True),
]
# Small and quick, for the fake GPU computes bf16 slowly.
SMALL = dict(turns=8, prompt_limit=64, response_limit=64, chunk=2**17, n_layers=4)
PACKED = dict(SMALL, token_budget=256, itemsize=2)
FP32 = dict(SMALL, token_budget=256)
SHARDED = dict(SMALL, token_budget=128, itemsize=2, hidden=512, ranks=2)
STAGE_3 = dict(SHARDED, zero_stage=3, reference="sharded")
ON_A_GPU = {
    "bf16, packed": PACKED,
    "bf16, packed, recomputing": dict(PACKED, gradient_checkpointing=True),
    "bf16, packed, tied, V = 128": dict(PACKED, vocab=128, tied=True),
    "bf16, packed, V = 16384": dict(PACKED, vocab=16384),
    "bf16, packed, two layers in the critic": dict(PACKED, critic_layers=2),
    "bf16, packed, a head as critic, no reference": dict(PACKED, critic_layers=0, reference="none"),
    "bf16, packed, --offload reference": dict(PACKED, reference="host"),
    "bf16, packed, LoRA": dict(PACKED, lora_rank=4),
    "bf16, packed, top layers": dict(PACKED, top_layers=2),
    "bf16, packed, LoRA, recomputing": dict(PACKED, lora_rank=4, gradient_checkpointing=True),
    "fp32, padded": FP32,
    "fp32, padded, recomputing": dict(FP32, gradient_checkpointing=True),
    "bf16, packed, ZeRO 0": SHARDED,
    "ZeRO 1": dict(SHARDED, zero_stage=1),
    "ZeRO 2": dict(SHARDED, zero_stage=2),
    "ZeRO 2, --offload optimizer": dict(SHARDED, zero_stage=2, offload_optimizer=True),
    "ZeRO 2, LoRA": dict(SHARDED, zero_stage=2, lora_rank=8),
    "ZeRO 3": STAGE_3,
    "ZeRO 3, recomputing": dict(STAGE_3, gradient_checkpointing=True),
    "ZeRO 3, --offload both": dict(STAGE_3, reference="host", offload_optimizer=True),
    "ZeRO 3, LoRA": dict(STAGE_3, reference="device", lora_rank=8),
}
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
    if not torch.cuda.is_available():
        for row in map(json.dumps, ON_A_CPU):
            [(moment, sizes)] = start(row).items()
            print(f"{row:58s} {compared(*sizes)} {moment}", flush=True)
        return None
    for name, row in ON_A_GPU.items():
        print(name)
        for moment, sizes in start(json.dumps(row), row.get("ranks", 0)).items():
            print(f"    {moment:8s} {compared(*sizes)}", flush=True)


def start(row: str, ranks: int = 0) -> dict[str, list[int]]:
    """Measure a row in processes of its own. ranks: 0: one process without a launcher"""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks else []
    return json.loads(run_python([*launcher, *sys.orig_argv[1:], row], MALLOC))


def compared(measured: int, estimated: int) -> str:
    return f"{measured / 1e6:7.0f} MB {estimated / 1e6:7.0f} MB {estimated / measured:6.2f}"


def measure(
    vocab=4096, hidden=256, n_layers=12, tied=False, turns=16, chunk=CHUNK, **changes
) -> dict[str, list[int]]:
    """Return the measured and the estimated peak bytes of each moment or, on a CPU, of the largest.

    chunk: logits of a block; changes: fields of `Setting`
    """
    for module in (ppo.model.decoder, run.estimate.activations):
        module.LOGITS_PER_CHUNK = chunk
    for module in (ppo.distributed, run.estimate.zero):
        module.BUCKET, module.LIVE = BUCKET, LIVE
    cuda = torch.cuda.is_available()
    setting = dict(critic_layers=1, token_budget=256, prompt_limit=128, response_limit=128, e_len=1)
    setting = Setting(**setting | changes, n_env=turns // changes.get("ranks", 1), cuda=cuda)
    if not cuda:
        train(make_lm(64, 256, 2, False), replace(setting, token_budget=setting.length), ALONE)
        gc.collect()
    before = proc_bytes("VmRSS")
    lm = make_lm(vocab, hidden, n_layers, tied)
    shape = Shape(lm)
    ranks = make_ranks(setting.zero_stage)
    peaks = train(lm, setting, ranks)
    estimated = totals(shape, setting)
    del estimated["generate"]
    if cuda:
        of_ranks = ranks.gather([peaks])
        largest = {moment: max(peaks[moment] for peaks in of_ranks) for moment in estimated}
        return {moment: [peak, estimated[moment]] for moment, peak in largest.items()}
    largest = max(estimated, key=estimated.get)
    return {largest: [proc_bytes("VmHWM") - before, estimated[largest]]}


def make_lm(vocab: int, hidden: int, n_layers: int, tied: bool):
    return random_lm(
        torch.float32, vocab_size=vocab, hidden_size=hidden, intermediate_size=11 * hidden // 4,
        num_hidden_layers=n_layers, num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128, tie_word_embeddings=tied,
    )  # fmt: skip


class Peaks(dict):
    """Moment -> peak bytes of this rank's GPU; `peaks.end(moment)` ends it."""

    def end(self, moment: str) -> None:
        if torch.cuda.is_available():
            self[moment] = max(self.get(moment, 0), torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()


def train(lm, setting: Setting, ranks) -> Peaks:
    """Make two updates of two steps; each step has at least two micro-batches of this rank."""
    args = get_args(flags(setting))
    half, peaks = setting.itemsize == 2, Peaks()
    model = build(
        lm.to(ranks.device),
        setting.critic_layers,
        dtype=torch.bfloat16 if half else torch.float32,
        packed=half and setting.cuda,
        recompute=setting.gradient_checkpointing,
        lora_rank=setting.lora_rank,
        top_layers=setting.top_layers,
    ).to(ranks.device)
    reference = make_reference(args.update, model)
    agent = make_agent(args.update, model, ranks, args.seed)
    batch, step = fill(setting, lm.config.vocab_size, ranks), agent.stepper.step

    def watched(loss):
        peaks.end("backward")
        result = step(loss)
        peaks.end("step")
        return result

    agent.stepper.step = watched
    peaks.end("start")
    for _ in range(2):  # AdamW's state comes with the first step
        plan = agent.plan(batch)
        with reference.awake():
            batch.score(model, reference, plan[0])
            batch.compute_returns(make_estimator(args.update))
        peaks.end("score")
        agent.update(batch, plan)
    return peaks


def flags(setting: Setting) -> list[str]:
    """Return the command line of a setting."""
    train = f"lora:{setting.lora_rank}" if setting.lora_rank else "all"
    train = f"top:{setting.top_layers}" if setting.top_layers else train
    moved = setting.offload_optimizer + 2 * (setting.reference == "host")
    values = {
        "--env-name": "toy",
        "--ppo-epoch": 1,
        "--minibatch": setting.ranks * setting.n_env // 2,
        "--zero-stage": setting.zero_stage,
        "--train": train,
        "--kl-coef": 0 if setting.reference == "none" else 0.1,
        "--offload": ["none", "optimizer", "reference", "both"][moved],
    }
    return [str(word) for pair in values.items() for word in pair]


def fill(setting: Setting, vocab: int, ranks) -> Batch:
    """Make a batch of turns of full length, as the estimate assumes."""
    scoring = Scoring(setting.token_budget, ranks)
    rollouts = Collection(setting.ranks * setting.n_env, FixedTurns(1), scoring)
    for n in range(setting.n_env):
        prompt = Prompt(torch.randint(vocab, (setting.prompt_limit,)).tolist())
        ids = torch.randint(vocab, (setting.response_limit,)).tolist()
        step = SimpleNamespace(
            reward=float(n % 2), done=True, terminated=True, truncated=False, fault="", number=1,
            seed=n, episode=0, previous_digest="", success=False, metrics={},
        )  # fmt: skip
        logps = [-1.0] * setting.response_limit
        rollouts.keep_response(n, Response(prompt, ids, logps, text="", pieces=[], truncated=False))
        rollouts.insert(n, step)
        rollouts.finish(n, prompt)
    return rollouts.join()


if __name__ == "__main__":
    main()
