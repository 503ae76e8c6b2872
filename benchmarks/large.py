"""Times the parts of one update of a large model with random weights, as main.py makes it.

    python -m benchmarks.large                     the shape of Qwen2.5-3B, on a GPU
    python -m benchmarks.large --shape tiny        takes a minute and also runs on a CPU
    python -m benchmarks.large -- --n-env 256      what follows -- goes to main.py

It makes three updates on the paper's BabyAI batch and reports the last one. With random weights all
responses reach their limit, and the history fills the prompts almost to theirs. The shape of 3B
needs a GPU of 80 GB (`--gradient-checkpointing`), and 60 GB of disk in $TMPDIR, most of it for the
checkpoint of the last update.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.common import GB, SHAPES, save_model
from common.cli import Parser
from main import program

FLAGS = [
    "--env-name", "babyai-goto", "--n-env", "32", "--e-len", "8", "--minibatch", "128",
    "--ppo-epoch", "1", "--lr", "1e-6", "--critic-layers", "2", "--memory-length", "32",
    "--prompt-limit", "600", "--response-limit", "120", "--w-epoch", "0", "--num-updates", "3",
    "--eval-interval", "0", "--save-interval", "1000", "--token-budget", "8192",
    "--gradient-checkpointing",
]  # fmt: skip


def main() -> int:
    parser = Parser("benchmarks.large", description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="3b", help="shape of the random model")
    parser.add_argument("--peak", type=float, default=989, help="published bf16 TFLOP/s of the GPU")
    parser.add_argument("flags", nargs="*", help="after --: flags of main.py")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        model, run = Path(folder) / "model", Path(folder) / "run"
        config = save_model(args.shape, model)
        code = program(["--model", str(model), "--run-dir", str(run), *FLAGS, *args.flags])
        if not code:
            report(config, run, args.peak)
    return code


def report(config, run: Path, peak: float) -> None:
    """Print the times of the last update. peak: published TFLOP/s of the device"""
    args = json.loads((run / "args.json").read_text(encoding="utf-8"))["args"]
    last = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    turns = args["n_env"] * args["e_len"]
    prompt, response = last["rollout/prompt_tokens"], last["rollout/response_tokens"]
    print(f"{turns} turns of {prompt:.0f} + {response:.0f} tokens, {args['n_env']} environments")
    for part in ("collect", "score", "update", "push", "total"):
        print(f"{part:8s} {last[f'time/{part}']:8.2f} s")
    sampled = turns * response / last["time/collect"]
    print(f"{sampled:.0f} sampled tokens per second of collection")
    flops = update_flops(config, args["critic_layers"], turns, prompt, response)
    rate = args["ppo_epoch"] * flops / last["time/update"] / 1e12
    print(f"update: {rate:.3g} TFLOP/s, {rate / peak:.1%} of {peak:g}")
    print(f"log-prob gap between engine and trainer: {last['engine/logp_gap_mean']:.2g} per token")
    if torch.cuda.is_available():
        print(f"peak of torch's allocator: {torch.cuda.max_memory_allocated() / GB:.1f} GiB")


def update_flops(config, critic_layers: int, turns: int, prompt: float, response: float) -> float:
    """Count the operations of one epoch over turns of `prompt` + `response` tokens.

    A matrix takes 2 operations per parameter and token forward, and 4 backward. The causal
    attention of a layer takes 4 T^2 Q / 2 forward, and twice that backward. The critic's branch
    starts from the trunk's hidden states, and lm_head computes response tokens only. Recomputation
    is not counted.
    """
    D, F, V = config.hidden_size, config.intermediate_size, config.vocab_size
    head_dim = D // config.num_attention_heads
    Q, K = D, head_dim * config.num_key_value_heads
    T, layers = prompt + response, config.num_hidden_layers + critic_layers
    per_layer = 6 * T * (2 * D * Q + 2 * D * K + 3 * D * F) + 6 * T * T * Q
    return turns * (layers * per_layer + 6 * response * V * D)


if __name__ == "__main__":
    sys.exit(main())
