"""Generation by vLLM in this process, with continuous batches and cached prefixes.

A response is handed over when it is complete, and not when its batch is. `vllm_settings` starts
vLLM, `vllm_steps` makes its steps, and `vllm_weights` fills it; what differs between a CPU and CUDA
stays in these files.
"""

import math
import sys
from collections import Counter, deque
from functools import partial

import numpy as np
import torch

from common.errors import RunError, as_run_error
from ppo.engines.contract import Engine, Response
from ppo.engines.gap import explained_gap
from ppo.engines.lockstep import TransformersEngine
from ppo.engines.shared import Sharing
from ppo.engines.vllm_settings import CUDA, chosen, start_vllm
from ppo.engines.vllm_steps import REMEDY, Answer, Request, Steps
from ppo.engines.vllm_submit import add_request
from ppo.engines.vllm_weights import PROBES, WholeWeights, gap_of


class VLLMEngine(Engine):
    """One engine per process, or one for ranks that share it. Several ranks build it after their
    process group.

    model: a Hugging Face directory or hub name; the weights themselves come by push_weights
    prompt_limit: longest prompt in tokens; gpu_memory_utilization: share of the GPU that vLLM fills
    max_num_seqs: responses that are sampled at the same time
    sharded: whether ZeRO stage 3 shards the weights, so that transformers cannot stand in
    weights: how they come into vLLM; None: whole
    untrained: whether prompts may have extra sampling options (Prompt.sampling.extra)
    sharing: neighbouring ranks that share the engine; those of the whole run divide by it
    CannotRun: vLLM has no kernel for the model on this device; ValueError: vLLM does not start,
        or ranks cannot share it
    """

    def __init__(
        self,
        tokenizer,
        ends,
        response_limit,
        temperature,
        *,
        model: str,
        prompt_limit: int,
        dtype: str,
        seed: int,
        gpu_memory_utilization: float,
        max_num_seqs: int,
        sharded=False,
        untrained=False,
        sharing=1,
        weights=None,
    ):
        super().__init__(tokenizer, ends, response_limit, temperature, max_num_seqs=max_num_seqs)
        self.dtype, self.sharded = dtype, sharded
        self.cuda, self.asleep = CUDA, False
        ranks = Sharing(sharing)
        self.fallback = TransformersEngine(tokenizer, ends, response_limit, temperature)
        self.recent, self.agreed = deque(maxlen=PROBES), False  # prompts; see check_weights
        self.totals = Counter()  # prompt tokens and those that were cached, since the last `stats`
        self.weights = weights or WholeWeights()
        self.llm = start_vllm(
            model=model,
            dtype=dtype,
            seed=seed,
            length=prompt_limit + response_limit,
            max_num_seqs=sharing * max_num_seqs,
            gpu_memory_utilization=gpu_memory_utilization,
            with_tokenizer=untrained,
            sharing=sharing,
            adapters=self.weights.options,
        )
        add = partial(add_request, self.llm.llm_engine, self.weights.request)
        self.steps = Steps(self.llm.llm_engine, ranks, add)
        self.chosen = chosen(self.llm.llm_engine)

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.add_request(slot, prompt, seed, self.limit_of(prompt))
        self.recent.append(prompt)

    def add_request(self, slot: int, prompt, seed: int, limit: int) -> None:
        temperature, ends = self.temperature_of(prompt), frozenset(self.ends)
        request = Request(list(prompt.ids), prompt.sampling, temperature, seed, limit, ends)
        self.steps.add(slot, prompt, request)

    def step(self) -> list[tuple[int, Response]]:
        """Sample a token of each running request. Returns the responses that this completes."""
        if self.idle:
            return []
        done = []
        for answer in self.completed():
            response = self.response(answer.prompt, answer.ids, answer.logps)
            done.append((answer.slot, response))
            self.totals.update(prompt=len(answer.prompt.ids), cached=answer.cached)
        return done

    def completed(self) -> list[Answer]:
        """Step vLLM. Returns complete answers, and those to prompts that vLLM has dropped.

        RunError: it has, and ZeRO stage 3 shards the weights that transformers would need
        """
        answers, lost = self.steps.step()
        if lost and self.sharded:
            raise RunError(f"vLLM failed at a prompt ({len(lost)} in this step)")
        if mine := [own for own in lost if own]:
            line = f"warning: vLLM failed at a prompt ({len(mine)} in this step)"
            print(f"{line}; transformers answers it", file=sys.stderr)
            for slot, prompt, request in mine:
                self.fallback.submit(slot, prompt, (request.seed,))
            for slot, other in self.fallback.step():
                answers.append(Answer(slot, other.prompt, other.ids, other.logps, cached=0))
        return answers

    def serve_others(self) -> None:
        """See `Steps.serve_others`."""
        self.steps.serve_others()

    def stats(self) -> dict[str, float]:
        """Return the share of prompt tokens that were cached, and the gap to the trainer's
        log-probs at the last push."""
        totals, self.totals = self.totals, Counter()
        if not totals["prompt"]:
            return {}
        hits = totals["cached"] / totals["prompt"]
        return {"engine/prefix_hits": hits, "engine/push_gap": self.push_gap}

    @property
    def idle(self) -> bool:
        return self.steps.idle

    @torch.no_grad()
    def push_weights(self, actor_critic) -> None:
        """Copy the actor's parameters into the engine's, and wake the engine.

        RunError: vLLM fails, or its log-probs are not those of the new weights
        """
        assert self.idle, f"{len(self.steps.sampled)} responses are still being sampled"
        self.fallback.push_weights(actor_critic)
        with as_run_error("vLLM does not take over the weights", REMEDY):
            self.wake("weights")
            self.weights.load(self.llm, actor_critic, getattr(torch, self.dtype))
            self.wake("kv_cache")
        self.push_gap = self.check_weights(actor_critic)

    @torch.no_grad()
    def check_weights(self, actor_critic) -> float:
        """Return the gap of the engine's log-probs to the trainer's on the last prompts (`gap_of`).

        A gap that rounding does not explain is a warning if the push before had none.
        RunError: it is the first push, the second with such a gap in a row, or nothing finite; or
        vLLM has failed
        """
        with as_run_error("vLLM fails at a prompt", REMEDY):
            gap = gap_of(self, self.recent, actor_critic)
        random_ids = len(self.recent) < PROBES  # they stand in for prompts before the first batch
        explained = explained_gap(self.dtype, self.temperature, random_ids)
        agreed, self.agreed = self.agreed, gap <= explained  # False where the gap is nan
        if not self.agreed:
            line = (
                "vLLM does not hold the trainer's weights: their log-probs differ by "
                f"{gap:.2g} per token, rounding explains {explained:g} in {self.dtype}"
            )
            if not (agreed and math.isfinite(gap)):
                raise RunError(f"{line}; --engine transformers needs no copy of the weights")
            line = f"warning: {line}; if the next push is as bad, the run ends"
            print(line, file=sys.stderr)  # every rank has its own
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
