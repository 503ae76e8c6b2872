"""Generation by vLLM (0.25 to 0.32) in this process, with continuous batches and cached prefixes.

Requests are added and harvested one by one around vLLM's own step, so a response is handed over
when it is complete and not when its batch is. This is the only file that imports vLLM, and
`make_engine` imports it on demand. What differs between a CPU and CUDA stays in here.
"""

import logging
import math
import os
import random
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from transformers import AutoConfig

from common.chat import Sampling
from common.errors import RunError
from common.plugins import UserError
from ppo.engines.contract import CannotRun, Engine, Response
from ppo.engines.lockstep import TransformersEngine
from storage.minibatch import MicroBatch

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
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams  # noqa: E402

# Mean |log-prob difference| per token between engine and trainer that rounding explains, at
# temperature 1. The bfloat16 bound detects wrong weights, but not weights one small update old.
GAPS = {"float32": 1e-3, "bfloat16": 0.1}
# Without this, small models would fill their JSON with blanks up to the response limit.
JSON = dict(backend="xgrammar", disable_any_whitespace=True)
PROBES = 4  # prompts on which they are compared


@dataclass(frozen=True)
class Probe:
    """A prompt of `check_weights`, answered at the run's temperature."""

    ids: list[int]
    opened: str = ""
    sampling: Sampling = Sampling()


class VLLMEngine(Engine):
    """One engine per process. With several ranks it is built after the process group.

    model: a Hugging Face directory or hub name; the weights themselves come by push_weights
    prompt_limit: longest prompt in tokens; gpu_memory_utilization: share of the GPU that vLLM fills
    max_num_seqs: responses that are sampled at the same time
    untrained: whether prompts may have extra sampling options (Prompt.sampling.extra)
    CannotRun: vLLM has no kernel for the model on this device; ValueError: vLLM does not start
    """

    def __init__(
        self, tokenizer, ends, response_limit, temperature, *, model: str, prompt_limit: int,
        dtype: str, seed: int, gpu_memory_utilization: float, max_num_seqs: int, sharded=False,
        untrained=False,
    ):  # fmt: skip
        super().__init__(tokenizer, ends, response_limit, temperature, max_num_seqs=max_num_seqs)
        self.dtype, self.sharded = dtype, sharded
        self.cuda, self.asleep = current_platform.is_cuda(), False
        self.names = map(str, count())  # of requests; `queue`: name -> slot, prompt, seed
        self.second = TransformersEngine(tokenizer, ends, response_limit, temperature)
        self.recent, self.agreed = deque(maxlen=PROBES), False  # prompts; see check_weights
        length = prompt_limit + self.response_limit
        # On a CPU, blocks have 32 tokens, as the default, 128, exceeds short prompts.
        cache = None if self.cuda else cpu_cache(model, dtype, tokens=2 * max_num_seqs * length)
        settings = dict(kv_cache_memory_bytes=cache, block_size=None if self.cuda else 32)
        settings |= dict(model=model, load_format="dummy", dtype=dtype, seed=seed)
        settings |= dict(max_num_seqs=max_num_seqs, gpu_memory_utilization=gpu_memory_utilization)
        settings |= dict(max_model_len=length, max_num_batched_tokens=max(length, 8192))
        # On a CPU no prompt is split over steps: its generator cannot be wound back.
        settings |= dict(enable_chunked_prefill=self.cuda, enforce_eager=not self.cuda)
        settings |= dict(enable_sleep_mode=self.cuda, enable_prefix_caching=True)
        settings |= dict(structured_outputs_config=JSON)
        # The model's own generation_config would set top-p, top-k and stop ids.
        settings |= dict(logprobs_mode="processed_logprobs", generation_config="vllm")
        many = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
        settings |= dict(distributed_executor_backend="external_launcher" if many else None)
        # Engines of one process share rotary tables; in vLLM 0.25 a second engine spoils them.
        rotary_embedding._ROPE_DICT.clear()
        with process_state():
            try:
                self.llm = LLM(**settings, skip_tokenizer_init=not untrained)
            except ValueError as error:  # the model is not supported, or memory is short
                raise UserError(f"vLLM does not start: {' '.join(str(error).split())}") from error

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._add(slot, prompt, seed, self.limit_of(prompt))
        self.recent.append(prompt)

    def step(self) -> list[tuple[int, Response]]:
        """Sample a token of each running request. Returns the responses that this completes."""
        if self.idle:
            return []
        began, busy, done, cached = time.perf_counter(), len(self.queue), [], 0
        for slot, prompt, ids, logps, hits in self._step():
            done.append((slot, self.response(prompt, ids, logps)))
            cached += hits
        self.account(began, [response for _, response in done], busy, cached)
        return done

    def stats(self) -> dict[str, float]:
        """Return `Engine.stats` with the gap to the trainer's log-probs at the last push."""
        stats = super().stats()
        return stats and stats | {"engine/push_gap": self.push_gap}

    def _add(self, slot: int, prompt, seed: int, limit: int) -> None:
        options = dict(temperature=self.temperature_of(prompt), seed=seed, max_tokens=limit)
        # Only these ids stop a response, and they are kept in it.
        options |= dict(stop_token_ids=sorted(self.ends), ignore_eos=True, detokenize=False)
        # 0 asks for the log-probs of the sampled tokens alone.
        options |= dict(logprobs=0, flat_logprobs=True, output_kind=RequestOutputKind.FINAL_ONLY)
        name, ids = next(self.names), {"prompt_token_ids": prompt.ids}
        try:
            params = SamplingParams(**options | extra_options(prompt.sampling))
            self.llm.llm_engine.add_request(name, ids, params)
        except ValueError as error:
            if prompt.sampling.trained:
                raise
            said = f"vLLM cannot give {prompt.sampling.extra}: {' '.join(str(error).split())}"
            print(f"warning: {said:.300}; the policy answers as it is", file=sys.stderr)
            self.llm.llm_engine.add_request(name, ids, SamplingParams(**options))
        self.queue[name] = slot, prompt, seed

    def _step(self) -> Iterator[tuple[int, object, list[int], list[float], int]]:
        """Step vLLM. Yields slot, prompt, ids, log-probs and cached prompt tokens of complete ones,
        at last those that vLLM failed at. RunError: ZeRO 3 shards the weights that could answer"""
        for out in self.llm.llm_engine.step():
            answer = out.outputs[0]
            if answer.token_ids and answer.finish_reason in ("stop", "length"):
                slot, prompt, *_ = self.queue.pop(out.request_id)
                ids, logps = list(answer.token_ids), list(answer.logprobs.logprobs)
                yield slot, prompt, ids, logps, out.num_cached_tokens or 0
        if self.queue and not self.llm.llm_engine.has_unfinished_requests():
            failed, self.queue = self.queue, {}
            said = f"vLLM failed at a prompt ({len(failed)} in this step)"
            if self.sharded:
                raise RunError(said)
            print(f"warning: {said}; transformers answers it", file=sys.stderr)
            for slot, prompt, seed in failed.values():
                self.second.submit(slot, prompt, (seed,))
            for slot, response in self.second.step():
                yield slot, response.prompt, response.ids, response.logps, 0

    @torch.no_grad()
    def push_weights(self, actor_critic) -> None:
        """Stream the actor's parameters into the engine's, one at a time, and wake the engine.
        RunError: its log-probs are not those of the new weights"""
        assert self.idle, f"{len(self.queue)} responses are still being sampled"
        self.second.push_weights(actor_critic)
        self.wake("weights")
        dtype = getattr(torch, self.dtype)
        weights = ((name, weight.to(dtype)) for name, weight in actor_critic.weights())
        # All in one call, because vLLM packs a fused layer when its last part has come. (Not by
        # load_weights: on a CPU it would miss the packed copies that layers compute with.)
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if not self.cuda:
            self.llm.apply_model(_repack_head)
        emptied = self.llm.reset_prefix_cache()
        assert emptied, "blocks of the prefix cache are still in use"
        self.wake("kv_cache")
        self.push_gap = self.check_weights(actor_critic)

    @torch.no_grad()
    def check_weights(self, actor_critic) -> float:
        """Return the mean |log-prob difference| per token to the trainer, at the temperature, on
        the first tokens of answers to the last prompts (to random ids where nothing was asked yet).

        A gap that rounding does not explain is a warning if the push before had none.
        RunError: it is the first push, the second with such a gap in a row, or nothing finite
        """
        g, gaps = torch.Generator().manual_seed(0), []
        others = torch.randint(actor_critic.lm.config.vocab_size, (PROBES, 16), generator=g)
        prompts = [*self.recent, *map(Probe, others.tolist())]
        # Always equally many, because with ZeRO stage 3 all ranks take part in each forward pass.
        for number, prompt in enumerate(prompts[:PROBES]):
            self._add(number, Probe(prompt.ids), number, min(8, self.response_limit))
        while not self.idle:
            for _, prompt, ids, logps, _ in self._step():
                tokens = torch.tensor(ids, device=actor_critic.lm.device)
                row = torch.cat([torch.tensor(prompt.ids, device=tokens.device), tokens])[None]
                mask = torch.arange(row.shape[1], device=row.device)[None] >= len(prompt.ids)
                # Greedy sampling reports log-probs at temperature 1.
                temperature = torch.full(tokens.shape, self.temperature or 1.0).to(tokens.device)
                batch = MicroBatch(torch.tensor([0]), row, mask, tokens, temperature)
                ours = actor_critic(batch).logps.float().cpu()
                gaps.append((ours - torch.tensor(logps)).abs())
        self.llm.reset_prefix_cache()  # a batch must not depend on what was asked here
        gap = torch.cat(gaps).mean().item()
        explained = GAPS[self.dtype] / min(1.0, self.temperature or 1.0)  # it divides the logits
        agreed, self.agreed = self.agreed, gap <= explained  # False where the gap is nan
        if not self.agreed:
            said = "vLLM does not hold the trainer's weights: their log-probs differ by "
            said += f"{gap:.2g} per token, rounding explains {explained:g} in {self.dtype}"
            if not (agreed and math.isfinite(gap)):
                raise RunError(f"{said}; --engine transformers needs no copy of the weights")
            said = f"warning: {said}; if the next push is as bad, the run ends"
            print(said, file=sys.stderr)  # every rank has its own
        return gap

    def sleep(self) -> None:
        """On CUDA, give memory back until the next push, unless a stopped batch is under way."""
        if self.cuda and self.idle and not self.asleep:
            self.llm.sleep(level=2)
            self.asleep = True

    def wake(self, part: str) -> None:
        """Take memory back. part: first "weights", then "kv_cache" when the weights are filled."""
        if self.asleep:
            torch.cuda.empty_cache()  # vLLM takes memory from the driver, not from torch's cache
            self.llm.wake_up(tags=[part])
            self.asleep = part != "kv_cache"


def extra_options(sampling: Sampling) -> dict:
    """Return the extra options of an untrained request as arguments of SamplingParams."""
    options = dict(sampling.extra)
    options.pop("n", None)  # the prompt is submitted n times
    for name in ("response_format", "tool_choice"):
        if (schema := options.pop(name, None)) is not None:
            options["structured_outputs"] = StructuredOutputsParams(json=schema)
    return options


def _repack_head(model) -> None:
    """Renew the packed copy that a tied lm_head computes with on a CPU; vLLM 0.32 forgets it."""
    if hasattr(model.lm_head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(model.lm_head, remove_weight=False)


def cpu_cache(model: str, dtype: str, tokens: int) -> int:
    """Return the bytes of `tokens` keys and values; by default vLLM claims most of the memory.
    CannotRun: vLLM has no kernel for this head size, and would fail only at the first request"""
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
