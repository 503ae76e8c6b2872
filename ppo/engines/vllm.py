"""Generation by vLLM in this process: continuous batching, cached prefixes, weights in place.

Requests are added and harvested one by one around vLLM's own step, as token ids, so a response is
handed over when it is complete and not when its batch is. This is the only file that imports vLLM,
and `make_engine` imports it on demand. It was written for vLLM 0.25 to 0.32. What differs between a
CPU and CUDA stays in here.
"""

import logging
import os
import random
import time
import warnings
from contextlib import contextmanager
from itertools import count

import numpy as np
import torch
from transformers import AutoConfig

from ppo.engines.contract import CannotRun, Engine, Response
from ppo.errors import RunError

# vLLM reads these variables when it is imported. The engine core must share this process: weights
# are pushed into it without a copy, and its steps are made from here.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")  # it takes no seed per request
if not torch.cuda.is_available():
    # Log-probs would first compile a C++ kernel: seconds for what takes microseconds without it.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.model_executor.layers import rotary_embedding  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402

# Mean |log-prob difference| per token between engine and trainer that rounding explains, at
# temperature 1. The bfloat16 bound is above the effect of a small update: it detects wrong weights,
# but not weights that are one update old.
GAPS = {"float32": 1e-3, "bfloat16": 0.1}


class VLLMEngine(Engine):
    """One engine per process. With several ranks it is built after the process group.

    model: a Hugging Face directory or hub name; the weights themselves come by push_weights
    prompt_limit: tokens; a prompt and its response fit into prompt_limit + response_limit
    gpu_memory_utilization: share of the GPU for weights and key-value cache
    max_num_seqs: responses that are sampled at the same time
    CannotRun: vLLM has no attention kernel for the model on this device
    ValueError: vLLM does not start, for lack of memory for instance
    """

    def __init__(
        self, tokenizer, ends, response_limit, temperature, *, model: str, prompt_limit: int,
        dtype: str, seed: int, gpu_memory_utilization: float, max_num_seqs: int, sharded=False,
    ):  # fmt: skip
        super().__init__(tokenizer, ends, response_limit, temperature)
        self.dtype, self.cuda, self.asleep = dtype, current_platform.is_cuda(), False
        self.names = count()
        self.running: dict[str, tuple[int, object]] = {}  # request -> slot, prompt
        length = prompt_limit + self.response_limit
        tokens = 2 * max_num_seqs * length
        settings = dict(
            model=model,
            load_format="dummy",
            dtype=dtype,
            seed=seed,
            max_model_len=length,
            max_num_seqs=max_num_seqs,
            gpu_memory_utilization=gpu_memory_utilization,
            kv_cache_memory_bytes=None if self.cuda else cpu_cache(model, dtype, tokens),
            # On a CPU no prompt is split over steps: vLLM would wind the request's generator
            # back for that, which a CPU generator cannot do.
            enable_chunked_prefill=self.cuda,
            max_num_batched_tokens=max(length, 8192),
            enforce_eager=not self.cuda,
            enable_sleep_mode=self.cuda,
            enable_prefix_caching=True,
            block_size=None if self.cuda else 32,  # the default, 128, exceeds short prompts
            logprobs_mode="processed_logprobs",  # log-probs at the sampling temperature
            skip_tokenizer_init=True,
            generation_config="vllm",  # the model's own would set top-p, top-k and stop ids
            distributed_executor_backend="external_launcher" if n_ranks() > 1 else None,
        )
        # Engines of one process share rotary tables; in vLLM 0.25 a second engine spoils them.
        rotary_embedding._ROPE_DICT.clear()
        with process_state():
            try:
                self.llm = LLM(**settings)
            except ValueError as error:  # the model is not supported, or memory is short
                raise ValueError(f"vLLM does not start: {' '.join(str(error).split())}") from error

    # ---- requests ---------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return not self.running

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.running[self._add(prompt.ids, seed, self.response_limit)] = slot, prompt

    def step(self) -> list[tuple[int, Response]]:
        """Make one step of vLLM: a token for each running request. Returns what it completed."""
        if self.idle:
            return []
        began, done, cached = time.perf_counter(), [], 0
        for name, output in self._step():
            slot, prompt = self.running.pop(name)
            done.append((slot, self.response(prompt, *_sampled(output))))
            cached += output.num_cached_tokens or 0
        self.account(began, [response for _, response in done], cached)
        return done

    def stats(self) -> dict[str, float]:
        """As `Engine.stats`, with the gap to the trainer's log-probs at the last push."""
        stats = super().stats()
        return stats and stats | {"engine/push_gap": self.push_gap}

    def _add(self, ids: list[int], seed: int, limit: int) -> str:
        name = str(next(self.names))
        params = SamplingParams(
            temperature=self.temperature,
            max_tokens=limit,
            seed=seed,
            stop_token_ids=sorted(self.ends),  # the id that stops is kept in the response
            ignore_eos=True,  # only stop_token_ids decide
            logprobs=0,  # of the sampled token alone
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.llm.llm_engine.add_request(name, {"prompt_token_ids": ids}, params)
        return name

    def _step(self) -> list[tuple[str, object]]:
        """Step vLLM; returns (request, output) of the requests that are complete."""
        return [(out.request_id, out) for out in self.llm.llm_engine.step() if out.finished]

    # ---- weights ----------------------------------------------------------------------------

    @torch.no_grad()
    def push_weights(self, actor_critic) -> None:
        """Stream the actor's parameters into the engine's, one at a time; wakes a sleeping engine.

        RunError: the engine's log-probs are not those of the new weights
        """
        assert self.idle, f"{len(self.running)} responses are still being sampled"
        self.wake("weights")
        dtype = getattr(torch, self.dtype)
        weights = ((name, weight.to(dtype)) for name, weight in actor_critic.weights())
        # All in one call, for vLLM packs a fused layer when its last part has come. (Its
        # load_weights does not serve: on a CPU packed copies have replaced the weights.)
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if not self.cuda:
            self.llm.apply_model(_repack_head)
        emptied = self.llm.reset_prefix_cache()
        assert emptied, "blocks of the prefix cache are still in use"
        self.wake("kv_cache")
        self.push_gap = self.check_weights(actor_critic)

    @torch.no_grad()
    def check_weights(self, actor_critic) -> float:
        """Mean |log-prob difference| per token to the trainer, on a few sampled sequences.

        RunError: it is larger than rounding explains
        """
        g = torch.Generator().manual_seed(0)
        prompts = torch.randint(actor_critic.lm.config.vocab_size, (4, 16), generator=g).tolist()
        names = [self._add(ids, seed, limit=8) for seed, ids in enumerate(prompts)]
        outputs = {}
        while len(outputs) < len(names):
            outputs.update(self._step())
        gaps = []
        for ids, name in zip(prompts, names, strict=True):
            sampled, logps = _sampled(outputs[name])
            row = torch.tensor([ids + sampled], device=actor_critic.lm.device)
            mask = torch.arange(row.shape[1], device=row.device).unsqueeze(0) >= len(ids)
            ours = actor_critic(row, mask).logps.float().cpu()
            gaps.append((ours - torch.tensor(logps)).abs())
        gap = torch.cat(gaps).mean().item()
        explained = GAPS[self.dtype] / min(1.0, self.temperature or 1.0)  # it divides the logits
        if not gap <= explained:  # also where the gap is nan
            raise RunError(
                f"vLLM does not hold the trainer's weights: their log-probs differ by {gap:.2g} "
                f"per token, rounding explains {explained:g} in {self.dtype}; the checkpoints are "
                "whole, --engine transformers needs no copy of the weights"
            )
        return gap

    def sleep(self) -> None:
        """On CUDA, give weights and key-value cache back until the next push."""
        assert self.idle, f"{len(self.running)} responses are still being sampled"
        if self.cuda and not self.asleep:
            self.llm.sleep(level=2)
            self.asleep = True

    def wake(self, part: str) -> None:
        """Take memory back. part: "weights" first, and "kv_cache" when these are filled again."""
        if self.asleep:
            self.llm.wake_up(tags=[part])
            self.asleep = part != "kv_cache"


def _sampled(output) -> tuple[list[int], list[float]]:
    completion = output.outputs[0]
    return list(completion.token_ids), list(completion.logprobs.logprobs)


def _repack_head(model) -> None:
    """On a CPU linear layers use packed copies; vLLM 0.32 does not renew that of a tied lm_head."""
    if hasattr(model.lm_head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def cpu_cache(model: str, dtype: str, tokens: int) -> int:
    """Bytes of keys and values for so many tokens. By itself vLLM would claim most of the memory.

    CannotRun: vLLM has no kernel for this head size; it would fail at the first request only
    """
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    config = AutoConfig.from_pretrained(model)
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if size not in sizes:
        raise CannotRun(
            f"vLLM has no attention kernel for heads of size {size} on a CPU "
            f"(it has {', '.join(map(str, sizes))}); use --engine transformers"
        )
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * size
    return tokens * per_token * getattr(torch, dtype).itemsize


def n_ranks() -> int:
    initialised = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if initialised else 1


@contextmanager
def process_state():
    """Undo what LLM() does to the process: it reseeds all generators and replaces a function."""
    states, threads = (random.getstate(), np.random.get_state()), torch.set_num_threads
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    logging.disable(logging.WARNING)
    try:
        with torch.random.fork_rng(devices), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.disable(logging.NOTSET)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_num_threads = threads
