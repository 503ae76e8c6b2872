"""How vLLM (0.25 to 0.32) is imported and started in this process.

Only the files of `ppo/engines/vllm*` import vLLM, and `make_engine` imports them on demand. This
one sets the variables that vLLM reads when it is imported, so it is the one to import it from.
"""

import logging
import os
import random
import warnings
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from transformers import AutoConfig

from common.errors import OutOfMemory, lacks_memory, reason_of
from common.plugins import UserError
from ppo.engines.choose import CannotRun

# The engine core must share this process: weights are pushed into it without a copy, and its steps
# are made from here.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # it takes no seed per request
if torch.cuda.is_available():
    # The sampler that the CPU build has, which this project's tests run; V2 has another one.
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
else:
    # Log-probs would first compile a C++ kernel: seconds for what takes microseconds without it.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

from vllm import LLM  # noqa: E402
from vllm.model_executor.layers import rotary_embedding  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402

from ppo.engines.vllm_arguments import (  # noqa: E402
    CUDA_ARGUMENTS,
    cpu_arguments,
    engine_arguments,
    has_own_head,
)

CUDA = current_platform.is_cuda()
SCALED = 2**15  # most tokens of a turn for which vLLM leaves out Llama 4's factor of long ones
STATES = {"linear_attention", "conv", "mamba"}  # kinds of layers with a state, not keys and values


def start_vllm(
    *,
    model: str,
    dtype: str,
    seed: int,
    length: int,
    max_num_seqs: int,
    gpu_memory_utilization: float,
    with_tokenizer: bool,
    sharing: int,
    adapters: dict,
) -> LLM:
    """Start vLLM without weights.

    length: most tokens of a prompt and its response; with_tokenizer: JSON schemas need one
    sharing: ranks among which the weights are split
    adapters: arguments of LLM that make room for adapters, if there are any
    CannotRun: vLLM has no kernel for the model on this device; UserError: vLLM does not start
    OutOfMemory: it lacks memory
    """
    config = AutoConfig.from_pretrained(model).get_text_config()
    check_support(config, length)
    own_head = config.tie_word_embeddings and has_own_head(model)
    tokens = 2 * max_num_seqs * length // sharing  # whose keys and values a CPU keeps
    arguments = engine_arguments(
        model=model,
        dtype=dtype,
        seed=seed,
        max_num_seqs=max_num_seqs,
        max_model_len=length,
        gpu_memory_utilization=gpu_memory_utilization,
        skip_tokenizer_init=not with_tokenizer,
        tensor_parallel_size=sharing,
        **adapters,
        hf_overrides=partial(as_loaded, own_head=own_head),
        **(CUDA_ARGUMENTS if CUDA else cpu_arguments(config, dtype, tokens)),
    )
    # Engines of one process share rotary tables; in vLLM 0.25 a second engine spoils them.
    rotary_embedding._ROPE_DICT.clear()
    with process_state():
        try:
            return LLM(**arguments)
        except Exception as error:  # the model is not supported, memory is short, and many more
            line = f"vLLM does not start: {reason_of(error)}; --engine transformers needs no vLLM"
            raise (OutOfMemory if lacks_memory(error) else UserError)(line) from error


def as_loaded(config, own_head: bool):
    """Return a config as the trainer has loaded the model: its weights are whole numbers, and its
    head is its own if the files have one."""
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    if own_head:
        config.get_text_config().tie_word_embeddings = False
    return config


def chosen(engine) -> dict[str, str]:
    """Return what vLLM has made of its arguments, for the run's table. engine: an LLMEngine"""
    config = engine.vllm_config
    compilation = config.compilation_config
    return {
        "vllm_ranks": str(config.parallel_config.tensor_parallel_size),
        "vllm_runner": "V2" if config.use_v2_model_runner else "V1",
        "vllm_async": "on" if config.scheduler_config.async_scheduling else "off",
        "vllm_compile": "off" if int(compilation.mode) == 0 else compilation.mode.name.lower(),
        "vllm_graphs": compilation.cudagraph_mode.name.lower(),
    }


def check_support(config, length: int) -> None:
    """CannotRun: vLLM starts with the model, but it cannot compute it here, or computes another

    length: most tokens of a prompt and its response
    """
    kinds = list(getattr(config, "layer_types", None) or [])
    for origin, assumed in assumed_kinds(config).items():
        if assumed != kinds:
            raise CannotRun(
                f"vLLM takes the kinds of layers of {config.model_type} from {origin}, which this "
                "model's layer_types contradict; use --engine transformers"
            )
    if getattr(config, "attn_temperature_tuning", False) and config.floor_scale < length <= SCALED:
        raise CannotRun(
            f"vLLM does not scale this model's attention beyond {config.floor_scale} tokens unless "
            f"--prompt-limit + --response-limit exceed {SCALED}; use --engine transformers"
        )
    states = " and ".join(sorted(STATES & set(kinds)))
    if states and not CUDA:
        raise CannotRun(f"vLLM has no kernel for {states} on a CPU; use --engine transformers")


def assumed_kinds(config) -> dict[str, list[str]]:
    """Return the kinds of layers that vLLM assumes where it does not read `layer_types`, by what
    it assumes them from."""
    if config.model_type == "llama4_text":
        ropes = config.no_rope_layers  # 1: with a rotation
        kinds = ["chunked_attention" if rope else "full_attention" for rope in ropes]
        return {"no_rope_layers": kinds}
    if config.model_type == "gpt_oss":
        two = ["sliding_attention", "full_attention"]
        return {"their order": [two[number % 2] for number in range(config.num_hidden_layers)]}
    return {}


@contextmanager
def process_state():
    """Undo what LLM() does to the process: it reseeds all generators and replaces a function."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    set_num_threads = torch.set_num_threads
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    logging.disable(logging.WARNING)
    try:
        with torch.random.fork_rng(devices), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_num_threads = set_num_threads
