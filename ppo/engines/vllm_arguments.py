"""Which arguments vLLM starts with: on a CPU, on CUDA, and on both.

`vllm_settings` imports this file, after it has set the variables that vLLM reads.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.utils import cached_file
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.engine.arg_utils import EngineArgs

from ppo.engines.choose import CannotRun
from ppo.engines.shared import launched


def engine_arguments(**others) -> dict:
    """Return vLLM's arguments: those that are the same everywhere, and the others."""
    return dict(
        load_format="dummy",  # push_weights fills the weights
        max_num_batched_tokens=max(others["max_model_len"], 8192),
        enable_prefix_caching=True,
        # Without this, small models fill their JSON with blanks up to the response limit.
        structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
        logprobs_mode="processed_logprobs",  # at the sampling temperature
        generation_config="vllm",  # the model's own would set top-p, top-k and stop ids
        distributed_executor_backend="external_launcher" if launched() > 1 else None,
        async_scheduling=False,  # no step is under way when weights come or vLLM goes to sleep
        **others,
    )


# The numbers are to be the trainer's, whose kernels are not compiled: see docs/larger-models.md.
CUDA_ARGUMENTS = dict(
    enable_sleep_mode=True,
    enable_chunked_prefill=True,
    enforce_eager=False,
    compilation_config={"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
)
if "sleep_mode_offload_cudagraph" in EngineArgs.__dataclass_fields__:  # not in vLLM 0.25
    CUDA_ARGUMENTS["sleep_mode_offload_cudagraph"] = True


def cpu_arguments(config, dtype: str, tokens: int) -> dict:
    """Return the arguments for a CPU. tokens, CannotRun: see `cpu_cache`"""
    # Ranks that share an engine compute by gloo: the shared memory that vLLM would take has the
    # same name in all runs of a machine, and stays behind where a run is killed.
    CpuCommunicator._all_group_ranks_share_shm_group_name = _no_shared_memory
    return dict(
        kv_cache_memory_bytes=cpu_cache(config, dtype, tokens),
        block_size=32,  # the default, 128, exceeds short prompts
        # No prompt is split over steps: the generator of a CPU cannot be wound back.
        enable_chunked_prefill=False,
        enforce_eager=True,
    )


def _no_shared_memory(communicator) -> bool:
    return False


def cpu_cache(config, dtype: str, tokens: int) -> int:
    """Return the bytes of `tokens` keys and values; by default vLLM claims most of the memory.

    CannotRun: vLLM has no kernel for this head size, and would fail only at the first request
    """
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    sizes = CPUAttentionBackend.get_supported_head_sizes()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if size not in sizes:
        raise CannotRun(
            f"vLLM has no attention kernel for heads of size {size} on a CPU "
            f"(it has {', '.join(map(str, sizes))}); use --engine transformers"
        )
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * size
    return tokens * per_token * getattr(torch, dtype).itemsize


def has_own_head(model: str) -> bool:
    """Whether the files of a model have a head that differs from its embeddings. The trainer keeps
    it, although config.json says that the two are one; vLLM would read the config alone."""
    head = stored(model, "lm_head.weight")
    embeddings = stored(model, "model.embed_tokens.weight")
    return head is not None and embeddings is not None and not torch.equal(head, embeddings)


def stored(model: str, name: str) -> Tensor | None:
    """Return a weight as the files of a model have it, or None."""
    silent = dict(_raise_exceptions_for_missing_entries=False)
    index, file = cached_file(model, "model.safetensors.index.json", **silent), "model.safetensors"
    if index:
        file = json.loads(Path(index).read_text())["weight_map"].get(name)
    path = cached_file(model, file, **silent) if file else None
    if not path:
        return None
    with safe_open(path, "pt") as weights:
        return weights.get_tensor(name) if name in weights.keys() else None
