"""Generation by vLLM in this process, with continuous batches and cached prefixes.

Requests are added and harvested one by one around vLLM's own step, so a response is handed over
when it is complete and not when its batch is. `vllm_settings` starts vLLM, and `vllm_weights`
fills it; what differs between a CPU and CUDA stays in these three files.
"""

import math
import sys
from collections import Counter, deque
from collections.abc import Iterator
from itertools import count

import numpy as np
import torch

from common.errors import RunError, as_run_error
from ppo.engines.contract import Engine, Response
from ppo.engines.gap import explained_gap
from ppo.engines.lockstep import TransformersEngine
from ppo.engines.shared import Request, neighbours
from ppo.engines.vllm_settings import CUDA, add_request, chosen, start_vllm
from ppo.engines.vllm_weights import PROBES, WholeWeights, gap_of

REMEDY = "--engine transformers needs no vLLM"


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
        self.ranks = neighbours(sharing)
        self.waiting = []  # slot, prompt, seed, limit: those that vLLM gets in the next step
        # `queue` has vLLM's requests: name -> slot, prompt, seed; None: they are another rank's
        self.names = map(str, count())
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
        self.chosen = chosen(self.llm.llm_engine)

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self.add_request(slot, prompt, seed, self.limit_of(prompt))
        self.recent.append(prompt)

    def step(self) -> list[tuple[int, Response]]:
        """Sample a token of each running request. Returns the responses that this completes."""
        if self.idle:
            return []
        done = []
        for slot, prompt, ids, logps, cached in self.completed():
            done.append((slot, self.response(prompt, ids, logps)))
            self.totals.update(prompt=len(prompt.ids), cached=cached)
        return done

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
        """Whether no prompt waits or is being sampled, of all ranks that share the engine: one of
        them that has none must go on with steps for the others."""
        return not (self.waiting or self.queue)

    def add_request(self, slot: int, prompt, seed: int, limit: int) -> None:
        """Keep a prompt for the next step, in which vLLM gets those of all ranks that share it."""
        self.waiting.append((slot, prompt, seed, limit))

    def exchange(self, waits: bool) -> bool:
        """Hand the new requests of all ranks to vLLM, on each rank in the same order.

        waits: whether this rank has stopped to ask. Returns whether all have
        """
        mine, self.waiting = self.waiting, []
        asked = [self.request(*asked) for asked in mine]
        told = self.ranks.gather([(waits, asked)])
        for rank, (_, requests) in enumerate(told):
            for number, request in enumerate(requests):
                own = mine[number][:3] if rank == self.ranks.rank else None
                name = next(self.names)
                add_request(self.llm.llm_engine, name, request, self.weights.request)
                self.queue[name] = own
        return all(waits for waits, _ in told)

    def request(self, slot: int, prompt, seed: int, limit: int) -> Request:
        """Return what vLLM is asked for a prompt."""
        temperature, ends = self.temperature_of(prompt), frozenset(self.ends)
        return Request(list(prompt.ids), prompt.sampling, temperature, seed, limit, ends)

    def serve_others(self) -> None:
        """Go on with steps until all ranks that share the engine have called this.

        A rank calls it before it waits for other ranks. Its own prompts are complete, or of a batch
        that breaks off.
        """
        while not self.exchange(waits=True):
            for _ in self.harvest():
                pass

    def completed(self) -> Iterator[tuple[int, object, list[int], list[float], int]]:
        """Step vLLM with the new prompts. Yields what `harvest` does."""
        self.exchange(waits=False)
        yield from self.harvest()

    def harvest(self) -> Iterator[tuple[int, object, list[int], list[float], int]]:
        """Step vLLM. Yields slot, prompt, ids, log-probs and number of cached prompt tokens of
        each complete response of this rank, and at last of those that vLLM failed at.

        RunError: the step fails, or a prompt does and ZeRO stage 3 shards the weights that
        transformers would need
        """
        with as_run_error("vLLM fails in a step", REMEDY):
            outputs = self.llm.llm_engine.step()
        for out in outputs:
            answer = out.outputs[0]
            if answer.token_ids and answer.finish_reason in ("stop", "length"):
                if own := self.queue.pop(out.request_id):
                    ids, logps = list(answer.token_ids), list(answer.logprobs.logprobs)
                    yield own[0], own[1], ids, logps, out.num_cached_tokens or 0
        if self.queue and not self.llm.llm_engine.has_unfinished_requests():
            failed, self.queue = [own for own in self.queue.values() if own], {}
            line = f"vLLM failed at a prompt ({len(failed)} in this step)"
            if self.sharded:
                raise RunError(line)
            if failed:
                print(f"warning: {line}; transformers answers it", file=sys.stderr)
            for slot, prompt, seed in failed:
                self.fallback.submit(slot, prompt, (seed,))
            for slot, response in self.fallback.step():
                yield slot, response.prompt, response.ids, response.logps, 0

    @torch.no_grad()
    def push_weights(self, actor_critic) -> None:
        """Copy the actor's parameters into the engine's, and wake the engine.

        RunError: vLLM fails, or its log-probs are not those of the new weights
        """
        assert self.idle, f"{len(self.queue)} responses are still being sampled"
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
        explained = explained_gap(self.dtype, self.temperature)
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
