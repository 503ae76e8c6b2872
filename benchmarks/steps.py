"""Times a step of each engine, in processor time, for models of several sizes.

    python -m benchmarks.steps                      the embedded model
    python -m benchmarks.steps --shape small        random weights
    python -m benchmarks.steps --compiled           also vLLM with a compiled forward pass

All engines answer the same prompts of 200 tokens, and all responses have the same length, which is
the best case for lock-step. The time of a step includes its share of reading the prompts. The
engines alternate in random order, so that a machine whose speed drifts does not bias a ratio.
"""

import os
import random
import statistics
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import torch

from benchmarks.common import SHAPES, VOCABULARY, Stopwatch, make_vllm, save_model
from common.chat import Sampling
from common.cli import Parser
from ppo.engines.lockstep import TransformersEngine
from ppo.model.make import build
from ppo.model.pretrained import load_lm
from recipes import TINY

PROMPT_LIMIT, PROMPT_TOKENS = 1024, 200


def main() -> None:
    parser = Parser("benchmarks.steps", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--shape", choices=SHAPES, help="random weights of this shape; default: embedded model")
    flag("--n-env", type=int, default=32, help="number of prompts in progress")
    flag("--tokens", type=int, default=64, help="length of each response")
    flag("--rounds", type=int, default=5, help="number of timed rounds")
    flag("--compiled", action="store_true", help="also time vLLM with a compiled forward pass")
    args = parser.parse_args()
    if args.compiled:
        os.environ["TORCHDYNAMO_DISABLE"] = "0"  # otherwise ppo.engines.vllm_settings sets it
    with TemporaryDirectory() as folder:
        if args.shape:
            save_model(args.shape, folder)
        measure(args, folder if args.shape else str(TINY))


def measure(args, model: str) -> None:
    lm, tokenizer, _ = load_lm(model, "cpu")
    names = ["vllm"] + ["compiled"] * args.compiled + ["transformers"]
    print(
        f"{args.shape or 'embedded'} model, {sum(p.numel() for p in lm.parameters()):,} parameters"
    )
    actor_critic, engines = build(lm, 0), {}
    for name in names:
        with Stopwatch() as took:
            engines[name] = make(name, model, tokenizer, args)
            engines[name].push_weights(actor_critic)
        print(f"{name} takes {took.processor_seconds:.1f} s of processor time to start", flush=True)
    took = {name: [] for name in names}
    for k in range(args.rounds + 1):
        for name in random.Random(k).sample(names, len(names)):
            took[name].append(step_ms(engines[name], k, args))
    took = {name: each[1:] for name, each in took.items()}  # the first round is a warm-up
    for name in names:
        ratios = [b / a for a, b in zip(took[name], took["transformers"], strict=True)]
        shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{name}: {statistics.median(took[name]):.2f} ms per step, speed relative to "
              f"transformers {statistics.median(ratios):.2f} ({shown})")  # fmt: skip


def make(name: str, model: str, tokenizer, args):
    """Make an engine. name: vllm, compiled or transformers"""
    if name == "transformers":
        return TransformersEngine(tokenizer, set(), args.tokens, 1.0)
    from ppo.engines import vllm_settings

    eager, original = name != "compiled", vllm_settings.LLM

    def changed(**settings):
        return original(**settings | dict(enforce_eager=eager))

    with patch.object(vllm_settings, "LLM", changed):
        limits = dict(prompt_limit=PROMPT_LIMIT, response_limit=args.tokens)
        return make_vllm(model, tokenizer, set(), args.n_env, torch.float32, **limits)


def step_ms(engine, k: int, args) -> float:
    """Answer the prompts of round k. Returns the milliseconds of processor time per step."""
    generator = torch.Generator().manual_seed(k)
    for slot in range(args.n_env):
        ids = torch.randint(3, VOCABULARY, (PROMPT_TOKENS,), generator=generator).tolist()
        prompt = SimpleNamespace(ids=ids, sampling=Sampling(), opened="")
        engine.submit(slot, prompt, (k, slot))
    with Stopwatch() as took:
        while not engine.idle:
            engine.step()
    return took.processor_seconds / args.tokens * 1000


if __name__ == "__main__":
    main()
