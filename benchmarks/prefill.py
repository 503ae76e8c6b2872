"""How fast vLLM computes prompts, beside the forward pass of transformers on the same tokens.

    python -m benchmarks.prefill --model smollm2 [--dtype bfloat16]

Each round has other prompts, so no prefix is cached, and responses of one token; `cold` is the
first. Rates are tokens per second of processor time, so work beside it hardly matters.
"""

import random
import statistics
from functools import partial

import torch

from benchmarks.common import Stopwatch, make_vllm
from common.cli import Parser
from memory.render import Prompt
from ppo.model.make import choose_dtype
from ppo.model.pretrained import load_lm
from run.earlier import model_path

PROMPTS, LENGTH, ROUNDS = 16, 256, 3


def main() -> None:
    parser = Parser("benchmarks.prefill", description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=model_path, default="smollm2", help="as --model of main.py")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="float32")
    args = parser.parse_args()
    folder, dtype = args.model, choose_dtype(args.dtype, "cpu")
    lm, tokenizer, ends = load_lm(folder, "cpu")
    lm.to(dtype)
    engine = make_vllm(folder, tokenizer, ends, PROMPTS, dtype, LENGTH, response_limit=1)
    draw = random.Random(0)
    vocabulary = range(100, len(tokenizer))
    ways = {"transformers": partial(forward, lm), "vLLM": partial(prefill, engine)}
    print(f"{PROMPTS} prompts of {LENGTH} tokens, {dtype}, {torch.get_num_threads()} thread(s)")
    for name, compute in ways.items():
        rates = []
        for _ in range(1 + ROUNDS):
            prompts = [draw.choices(vocabulary, k=LENGTH) for _ in range(PROMPTS)]
            with Stopwatch() as took:
                compute(prompts)
            rates.append(PROMPTS * LENGTH / took.processor_seconds)
        cold, *warm = rates
        print(f"{name:14s} cold {cold:8,.0f}   then {statistics.median(warm):8,.0f} tokens/s")


def forward(lm, prompts: list[list[int]]) -> None:
    with torch.no_grad():
        for ids in torch.tensor(prompts).split(8):
            lm(input_ids=ids, logits_to_keep=1)


def prefill(engine, prompts: list[list[int]]) -> None:
    for slot, ids in enumerate(prompts):
        engine.submit(slot, Prompt(ids), (slot,))
    while not engine.idle:
        engine.step()


if __name__ == "__main__":
    main()
