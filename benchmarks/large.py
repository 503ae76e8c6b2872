"""One update of a large model with random weights, in its parts: what a GPU makes of main.py.

    python -m benchmarks.large                     the shape of Qwen2.5-3B, on a GPU
    python -m benchmarks.large --shape tiny        the same program in a minute on a CPU
    python -m benchmarks.large -- --n-env 256      what follows -- goes to main.py

Three updates of the paper's BabyAI batch; the last one is reported. The weights are random, so all
responses are as long as the limit, and prompts are filled up with history to nearly theirs.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

import main
from arguments import TINY
from storage.ranks import ALONE

SHAPES = {
    "3b": dict(
        hidden_size=2048, num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
        intermediate_size=11008, vocab_size=151_936,
    ),
    "small": dict(
        hidden_size=256, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2,
        intermediate_size=768, vocab_size=8192,
    ),
    "tiny": dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=96, vocab_size=1024,
    ),
}  # fmt: skip
FLAGS = """--env-name babyai-goto --n-env 32 --e-len 8 --minibatch 128 --ppo-epoch 1 --lr 1e-6
    --critic-layers 2 --memory-length 32 --prompt-limit 600 --response-limit 120 --w-epoch 0
    --num-updates 3 --eval-interval 0 --save-interval 1000 --token-budget 8192""".split()
GB = 2**30


def build(shape: str, folder: Path | str) -> Qwen2Config:
    """A model of random weights in bf16 with the embedded model's tokenizer."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    config = Qwen2Config(
        **SHAPES[shape], tie_word_embeddings=True, max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    with torch.device(ALONE.device):
        lm = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return config


def update_flops(config, critic_layers: int, turns: int, prompt: float, response: float) -> float:
    """Of one epoch: 2 a parameter and token forward, 4 backward, 4 T^2 Q / 2 a layer for causal
    attention forward and twice that backward. The branch starts at the trunk's hidden states, and
    the head works on response tokens alone. What is computed again is not counted."""
    D, F, V = config.hidden_size, config.intermediate_size, config.vocab_size
    head_dim = D // config.num_attention_heads
    Q, K = D, head_dim * config.num_key_value_heads
    T, layers = prompt + response, config.num_hidden_layers + critic_layers
    a_layer = 6 * T * (2 * D * Q + 2 * D * K + 3 * D * F) + 6 * T * T * Q
    return turns * (layers * a_layer + 6 * response * V * D)


def report(args, config, run: Path) -> None:
    typed = json.loads((run / "args.json").read_text())["args"]
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    turns = typed["n_env"] * typed["e_len"]
    prompt, response = last["rollout/prompt_tokens"], last["rollout/response_tokens"]
    print(f"{turns} turns of {prompt:.0f} + {response:.0f} tokens, {typed['n_env']} at a time")
    for part in ("collect", "score", "update", "push", "total"):
        print(f"{part:8s} {last[f'time/{part}']:8.2f} s")
    sampled = turns * response / last["time/collect"]
    print(f"sampled tokens per second of collection: {sampled:.0f}")
    flops = update_flops(config, typed["critic_layers"], turns, prompt, response)
    rate = typed["ppo_epoch"] * flops / last["time/update"] / 1e12
    print(f"update: {rate:.3g} TFLOP/s, {rate / args.peak:.1%} of {args.peak:g}")
    print(f"log-prob gap of the engine: {last['engine/logp_gap_mean']:.2g} per token")
    if torch.cuda.is_available():
        print(f"peak of torch's allocator: {torch.cuda.max_memory_allocated() / GB:.1f} GiB")


def get_args() -> tuple[argparse.Namespace, list[str]]:
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="3b")
    parser.add_argument("--peak", type=float, default=989, help="TFLOP/s of the GPU in bf16")
    return parser.parse_args(words[:at]), words[at + 1 :]


if __name__ == "__main__":
    args, flags = get_args()
    with TemporaryDirectory() as folder:
        model, run = Path(folder) / "model", Path(folder) / "run"
        config = build(args.shape, model)
        command = ["--model", str(model), "--run-dir", str(run), *FLAGS, *flags]
        if code := main.program(command):
            sys.exit(code)
        report(args, config, run)
