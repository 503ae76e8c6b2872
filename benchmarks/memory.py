"""Peak memory of scoring and updating, measured, against what `--dry-run-memory` says.

    python -m benchmarks.memory

Each row is a process of its own: a random Qwen2 of 6 to 24 M parameters scores and updates once, on
16 turns of full length in two minibatches. On a CPU the peak is the high-water mark of the resident
set; what the process holds after the same work on a smaller model, mostly libraries, is subtracted.
On CUDA the allocator gives the peak. Generation is not measured.
"""

import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

import ppo.fit.estimate
import ppo.model.decoder
from ppo.advantages import dual_discount_gae
from ppo.agent import Agent
from ppo.engines.contract import Response
from ppo.fit.estimate import Setting, Shape, totals
from ppo.model.actor_critic import ActorCritic, Reference
from storage.rollout import RolloutStorage

DISCOUNTS = dict(gamma_step=0.99, lam_step=0.95, gamma_token=1.0, lam_token=1.0)
TURNS, PROMPT, RESPONSE = 16, 128, 128
CHUNK = 2**22  # entries of a block of logits: few, so that there are several blocks
ROWS = [
    dict(token_budget=1024),
    dict(token_budget=512),
    dict(token_budget=1024, gradient_checkpointing=True),
    dict(token_budget=256, vocab=32768, n_layers=4),
    dict(token_budget=256, vocab=32768, n_layers=4, tied=True),
    dict(token_budget=1024, n_layers=4, itemsize=2),  # slow on a CPU without bf16
    dict(token_budget=1024, n_layers=4, itemsize=2, gradient_checkpointing=True),
]
MALLOC = {  # freed memory goes back to the system at once, and no longer counts
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
}


def make_lm(vocab: int, hidden: int, n_layers: int, tied: bool):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=11 * hidden // 4,
        num_hidden_layers=n_layers, num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128, tie_word_embeddings=tied,
    )  # fmt: skip
    lm = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return lm.float().eval()


def fill(setting: Setting, vocab: int) -> RolloutStorage:
    """Make turns of full length, as the estimate assumes."""
    rollouts = RolloutStorage(1, TURNS, setting.token_budget)
    for n in range(TURNS):
        prompt = SimpleNamespace(ids=torch.randint(vocab, (PROMPT,)).tolist())
        ids = torch.randint(vocab, (RESPONSE,)).tolist()
        rollouts.act(n, Response(prompt, ids, [-1.0] * RESPONSE, "", [], False))
        rollouts.insert(
            n,
            SimpleNamespace(
                reward=float(n % 2), terminated=True, truncated=False, done=False, fault=""
            ),
        )
        rollouts.finish(n, prompt)
    return rollouts


def train(lm, setting: Setting, device: str) -> None:
    """Make an update of two steps; each step has at least two micro-batches."""
    dtype = torch.bfloat16 if setting.itemsize == 2 else torch.float32
    model = ActorCritic(
        lm,
        setting.critic_layers,
        1.0,
        dtype=dtype,
        recompute=setting.gradient_checkpointing,
        packed=setting.cuda and setting.itemsize == 2,  # as main.py does
    ).to(device)
    reference = Reference(lm, 1.0, dtype)
    agent = Agent(
        model, lr=1e-5, critic_lr=1e-5, clip=0.2, value_clip=0.5, first_token_weight=3.0,
        entropy_coef=0.0, max_grad_norm=1.0, ppo_epoch=1, minibatch=TURNS // 2,
        generator=torch.Generator(),
    )  # fmt: skip
    rollouts = fill(setting, lm.config.vocab_size)
    rollouts.score(model, reference)
    rollouts.compute_returns(partial(dual_discount_gae, **DISCOUNTS), False)
    agent.update(rollouts)


def measure(
    vocab: int = 4096, n_layers: int = 12, tied: bool = False, **changes
) -> dict[str, float]:
    """Give measured and estimated bytes of this process."""
    ppo.model.decoder.LOGITS_PER_CHUNK = ppo.fit.estimate.LOGITS_PER_CHUNK = CHUNK
    cuda = torch.cuda.is_available()
    setting = Setting(1, PROMPT + RESPONSE, PROMPT, RESPONSE, n_env=1, cuda=cuda)
    setting = replace(setting, **changes)
    device = "cuda" if cuda else "cpu"
    train(make_lm(64, 256, 2, tied), replace(setting, token_budget=PROMPT + RESPONSE), device)
    gc.collect()
    before = resident("VmRSS")
    lm = make_lm(vocab, 256, n_layers, tied)
    shape = Shape(lm)
    train(lm.to(device), setting, device)
    measured = torch.cuda.max_memory_allocated() if cuda else resident("VmHWM") - before
    sums = totals(shape, setting)
    del sums["generate"]
    moment = max(sums, key=sums.get)
    return dict(measured=measured, estimated=sums[moment], moment=moment)


def resident(name: str) -> int:
    """Bytes of this process: VmRSS is what it holds now, VmHWM the most that it ever held."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


def main() -> None:
    if sys.argv[1:]:
        print(json.dumps(measure(**json.loads(sys.argv[1]))))
        return
    print(f"torch {torch.__version__}, cuda: {torch.cuda.is_available()}")
    print(f"{'setting':58s} {'measured':>10s} {'estimated':>10s} {'ratio':>6s}")
    for row in ROWS:
        words = json.dumps(row)
        command = [sys.executable, "-m", "benchmarks.memory", words]
        output = subprocess.run(command, capture_output=True, text=True, env=os.environ | MALLOC)
        assert output.returncode == 0, output.stderr
        found = json.loads(output.stdout.splitlines()[-1])
        measured, estimated = found["measured"] / 1e6, found["estimated"] / 1e6
        print(
            f"{words:58s} {measured:7.0f} MB {estimated:7.0f} MB {estimated / measured:6.2f}",
            found["moment"],
            flush=True,
        )


if __name__ == "__main__":
    main()
