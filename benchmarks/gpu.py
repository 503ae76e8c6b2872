"""Checks and times what differs on a GPU: the kernel for packed rows, and vLLM's sleep.

    python -m benchmarks.gpu                   random weights in the shape of Qwen2.5-3B
    python -m benchmarks.gpu --shape tiny      takes a minute and also runs on a CPU

Scores and gradients of packed rows may be up to twice as far from fp32 as those of padded rows. If
one of them is farther away, the exit code is 1.
"""

import statistics
import sys
from functools import partial
from tempfile import TemporaryDirectory

import torch

from benchmarks.common import GB, SHAPES, Stopwatch, make_vllm, save_model, seconds
from common.cli import Parser
from common.ranks import ALONE
from ppo.engines.choose import CannotRun
from ppo.model.make import build, choose_dtype
from ppo.model.pretrained import load_lm
from run.doctor.rows import agree, differentiate, distance, make_model, make_turns

TURNS, PROMPT, RESPONSE = 8, 600, 120
DEVICE = ALONE.device


def main() -> int:
    parser = Parser("benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="3b", help="shape of the random model")
    dtypes = ["auto", "bfloat16", "float32"]
    parser.add_argument("--dtype", choices=dtypes, default="auto", help="auto: bfloat16 on a GPU")
    args = parser.parse_args()
    dtype = choose_dtype(args.dtype, DEVICE)
    print(f"{args.shape}, {DEVICE}, {dtype}")
    with TemporaryDirectory() as folder:
        save_model(args.shape, folder)
        lm, tokenizer, ends = load_lm(folder, DEVICE)
        agrees = check_packing(lm, dtype)
        time_sleep(lm, tokenizer, ends, folder, dtype)
    return 0 if agrees else 1


def check_packing(lm, dtype) -> bool:
    exact, _ = scores(lm, torch.float32, packed=False)
    padded, padded_time = scores(lm, dtype, packed=False)
    packed, packed_time = scores(lm, dtype, packed=True)
    agrees = True
    print(f"{'relative distance to fp32':36s} {'padded':>9s} {'packed':>9s}")
    for name in exact:
        a, b = distance(padded[name], exact[name]), distance(packed[name], exact[name])
        agrees = agrees and agree(a, b)
        print(f"{name:36s} {a:9.2g} {b:9.2g}")
    print(f"{'scores and gradients, seconds':36s} {padded_time:9.3f} {packed_time:9.3f}")
    return agrees


def scores(lm, dtype, packed: bool) -> tuple[dict[str, torch.Tensor], float]:
    """Return the scores and gradients of TURNS turns, and the median seconds of three rounds."""
    model = make_model(lm, dtype, packed)
    batch = make_turns(lm.config.vocab_size, DEVICE, TURNS, PROMPT, RESPONSE)
    rounds = []
    for _ in range(4):
        with Stopwatch() as took:
            results = differentiate(model, batch)
        rounds.append(took.seconds)
    return results, statistics.median(rounds[1:])


def time_sleep(lm, tokenizer, ends, folder: str, dtype) -> None:
    """Print how long vLLM takes to start, push and sleep, and the GPU memory free after each."""
    lm.config._attn_implementation = "sdpa"
    actor_critic = build(lm, 0, dtype=dtype)
    try:
        with Stopwatch() as took:
            engine = make_vllm(folder, tokenizer, ends, 32, dtype, PROMPT, RESPONSE)
    except CannotRun as error:
        return print(error)
    print_step("start", took.seconds)
    push = partial(engine.push_weights, actor_critic)
    steps = {"push": push, "second push": push, "sleep": engine.sleep, "wake": push}
    for name, step in steps.items():
        print_step(name, seconds(step))
    print(f"{'gap between its log-probs and ours':36s} {engine.push_gap:9.2g}")


def print_step(name: str, took: float) -> None:
    cuda = torch.cuda.is_available()
    free = f"{torch.cuda.mem_get_info()[0] / GB:6.1f} GiB free" if cuda else ""
    print(f"vLLM {name:31s} {took:9.3f} s {free}")


if __name__ == "__main__":
    sys.exit(main())
