"""Helpers of the benchmarks: timing, processes and their memory, random models, vLLM."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

from common.ranks import ALONE
from ppo.engines.choose import make_engine
from recipes import TINY

GB = 2**30
# Ids of the embedded model's tokenizer, which small random models share
VOCABULARY = json.loads((TINY / "config.json").read_text())["vocab_size"]
SHAPES = {
    "3b": dict(
        hidden_size=2048, num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
        intermediate_size=11008, vocab_size=151_936,
    ),
    "small": dict(
        hidden_size=256, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2,
        intermediate_size=768, vocab_size=8192,
    ),
    "medium": dict(
        hidden_size=512, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=8,
        intermediate_size=2048, vocab_size=8192,
    ),
    "narrow": dict(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=384, vocab_size=1024,
    ),
    "tiny": dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=96, vocab_size=1024,
    ),
}  # fmt: skip


class Stopwatch:
    """`with Stopwatch() as took:` measures `took.seconds` and `took.processor_seconds`.

    Processor time is that of this process alone. Both wait for work that is queued on a GPU.
    """

    def __enter__(self) -> "Stopwatch":
        synchronize()
        self.began, self.worked = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error) -> None:
        synchronize()
        self.seconds = time.perf_counter() - self.began
        self.processor_seconds = time.process_time() - self.worked


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(function: Callable[[], object]) -> float:
    with Stopwatch() as took:
        function()
    return took.seconds


def medians(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the medians of A, of B and of A / B, where each pair is (A, B)."""
    a, b = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
    return a, b, statistics.median(a / b for a, b in pairs)


def compare(
    name: str,
    slow: Callable[[], object],
    fast: Callable[[], object],
    pairs: int,
    target: float | None = None,
) -> None:
    """Print the median ratio slow / fast over `pairs` alternating runs, after an untimed pair."""
    slow(), fast()
    a, b, ratio = medians([(seconds(slow), seconds(fast)) for _ in range(pairs)])
    wanted = f">= {target:g}" if target else ""
    a, b = f"{a * 1e3:.1f} ms", f"{b * 1e3:.1f} ms"
    print(f"{name:62s} {a:>12s} {b:>12s} {ratio:8.1f}x  {wanted}", flush=True)


def run_python(words: list[str], variables: dict[str, str]) -> str:
    """Run Python with these arguments and environment variables. Returns its last line."""
    command, env = [sys.executable, *words], os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def proc_bytes(name: str, file: str = "/proc/self/status") -> int:
    """Return a size from /proc. VmRSS: what a process holds now; VmHWM: its peak so far."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(file).read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) * 1024


def random_lm(dtype: torch.dtype, **config):
    """Make a Qwen2 with random weights. config: fields of its configuration"""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(Qwen2Config(**config), dtype=dtype).eval()


def save_model(shape: str, folder: Path | str) -> Qwen2Config:
    """Write a random bf16 model with the embedded model's tokenizer. shape: a key of SHAPES"""
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    with torch.device(ALONE.device):
        lm = random_lm(
            torch.bfloat16, **SHAPES[shape], tie_word_embeddings=True,
            max_position_embeddings=32768, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        )  # fmt: skip
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return lm.config


def make_vllm(
    model: str, tokenizer, ends: set[int], slots: int, dtype, prompt_limit: int, response_limit: int
):
    """Make a vLLM engine as main.py does, without the wrappers that measure and check it.

    CannotRun: vLLM is not installed, or it cannot run the model
    """
    settings = Namespace(
        engine="vllm", model=model, prompt_limit=prompt_limit, response_limit=response_limit,
        temperature=1.0, gpu_memory_utilization=0.3, endpoint_sampling="refuse",
    )  # fmt: skip
    return make_engine(settings, tokenizer, ends, slots, dtype, seed=0).inner.inner
