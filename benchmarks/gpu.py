"""What a GPU does otherwise, checked and timed: packed rows in a kernel of their own, vLLM's sleep.

    python -m benchmarks.gpu                   random weights in the shape of Qwen2.5-3B
    python -m benchmarks.gpu --shape tiny      in a minute, on a CPU as well

Packed scores and gradients may be as far from those in fp32 as padded ones are, twice at most; if
they are not, the exit code is 1.
"""

import argparse
import statistics
import sys
import time
from tempfile import TemporaryDirectory

import torch

from benchmarks.large import GB, SHAPES, build
from ppo.engines.contract import CannotRun, make_engine
from ppo.model.actor_critic import ActorCritic
from ppo.model.decoder import choose_dtype
from ppo.model.pretrained import load_lm
from storage.ranks import ALONE

TURNS, PROMPT, RESPONSE = 8, 600, 120
DEVICE, CUDA = ALONE.device, torch.cuda.is_available()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="3b")
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"], default="auto")
    args = parser.parse_args()
    dtype = choose_dtype(args.dtype, DEVICE)
    print(f"{args.shape}, {DEVICE}, {dtype}")
    with TemporaryDirectory() as folder:
        build(args.shape, folder)
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
        a, b = (distance(ours[name], exact[name]) for ours in (padded, packed))
        agrees = agrees and b <= 2 * a + 1e-5
        print(f"{name:36s} {a:9.2g} {b:9.2g}")
    print(f"{'scores and gradients, seconds':36s} {padded_time:9.3f} {packed_time:9.3f}")
    return agrees


def scores(lm, dtype, packed: bool) -> tuple[dict[str, torch.Tensor], float]:
    """Scores of TURNS turns, a few gradients of a loss on them; seconds, the median of three."""
    lm.config._attn_implementation = "sdpa"  # packing sets its own
    lm.zero_grad()
    model = ActorCritic(lm, 2, 1.0, dtype=dtype, recompute=True, packed=packed)
    torch.manual_seed(1)
    torch.nn.init.normal_(model.head.weight, std=0.02)
    watched = {
        "gradient, first layer's values": lm.model.layers[0].self_attn.v_proj.weight,
        "gradient, last layer's queries": lm.model.layers[-1].self_attn.q_proj.weight,
        "gradient, branch's queries": model.branch[0].self_attn.q_proj.weight,
    }
    ids, mask = turns(lm.config.vocab_size)
    taken = []
    for _ in range(4):
        model.zero_grad()
        synchronize()
        start = time.perf_counter()
        out = model(ids, mask)
        (out.logps.mean() + out.values.square().mean()).backward()
        synchronize()
        taken.append(time.perf_counter() - start)
    said = {"log-probs": out.logps.detach(), "values": out.values.detach()}
    said |= {name: weight.grad.clone() for name, weight in watched.items()}
    return said, statistics.median(taken[1:])


def turns(vocab_size: int):
    """Turns of random lengths: ids and response_mask (TURNS, PROMPT + RESPONSE)."""
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(vocab_size, (TURNS, PROMPT + RESPONSE), generator=rng)
    prompts = torch.randint(PROMPT // 4, PROMPT, (TURNS, 1), generator=rng)
    responses = torch.randint(RESPONSE // 4, RESPONSE, (TURNS, 1), generator=rng)
    at = torch.arange(PROMPT + RESPONSE)
    return ids.to(DEVICE), ((at >= prompts) & (at < prompts + responses)).to(DEVICE)


def distance(ours, exact) -> float:
    return ((ours - exact).norm() / exact.norm()).item()


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def time_sleep(lm, tokenizer, ends, folder: str, dtype) -> None:
    """Seconds of vLLM's start, pushes, sleep; memory of the GPU that others have, as it goes."""
    settings = argparse.Namespace(
        engine="vllm", model=folder, response_limit=RESPONSE, prompt_limit=PROMPT, temperature=1.0,
        seed=0, gpu_memory_utilization=0.3, zero_stage=0,
    )  # fmt: skip
    lm.config._attn_implementation = "sdpa"
    actor_critic = ActorCritic(lm, 0, 1.0, dtype=dtype)
    start = time.perf_counter()
    try:
        engine = make_engine(settings, tokenizer, ends, 32, dtype)
    except CannotRun as error:
        return print(error)
    steps = dict(
        start=lambda: None,
        push=lambda: engine.push_weights(actor_critic),
        again=lambda: engine.push_weights(actor_critic),
        sleep=engine.sleep,
        wake=lambda: engine.push_weights(actor_critic),
    )
    for name, step in steps.items():
        step()
        synchronize()
        now = time.perf_counter()
        free = f"{torch.cuda.mem_get_info()[0] / GB:6.1f} GiB free" if CUDA else ""
        print(f"vLLM {name:31s} {now - start:9.3f} s {free}")
        start = now
    print(f"{'gap of its log-probs to the trainer':36s} {engine.push_gap:9.2g}")


if __name__ == "__main__":
    sys.exit(main())
