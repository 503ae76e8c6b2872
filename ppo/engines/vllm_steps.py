"""What goes into vLLM's steps and comes out: requests, and the responses that are complete.

With several ranks per engine (`ppo.engines.shared`), each hands vLLM the requests of all. What a
request is to vLLM, `vllm_submit` knows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from common.chat import Sampling
from common.errors import as_run_error
from ppo.distributed import together
from ppo.engines.shared import Sharing

REMEDY = "--engine transformers needs no vLLM"


@dataclass(frozen=True)
class Request:
    """What vLLM is asked: all that a response depends on besides the weights."""

    ids: list[int]
    sampling: Sampling
    temperature: float
    seed: int
    limit: int  # tokens
    ends: frozenset[int]


@dataclass(frozen=True)
class Answer:
    """What vLLM has sampled for a prompt of this rank."""

    slot: int
    prompt: object
    ids: list[int]
    logps: list[float]
    cached: int  # tokens of the prompt that were in the prefix cache


class Steps:
    """The steps of an engine, made by all ranks that share it.

    llm_engine: vLLM's LLMEngine; add_request: gives it a name and a Request
    """

    def __init__(self, llm_engine, ranks: Sharing, add_request: Callable[[str, Request], None]):
        self.llm_engine, self.ranks, self.add_request = llm_engine, ranks, add_request
        self.waiting = []  # slot, prompt, request: those that vLLM gets in the next step
        self.names = map(str, count())
        # What vLLM samples: name -> slot, prompt, request; None: it is another rank's
        self.sampled: dict[str, tuple | None] = {}

    @property
    def idle(self) -> bool:
        """Whether no prompt waits or is being sampled, of all ranks that share the engine: one of
        them that has none must go on with steps for the others."""
        return not (self.waiting or self.sampled)

    def add(self, slot: int, prompt, request: Request) -> None:
        """Keep a prompt for the next step, in which vLLM gets those of all ranks that share it."""
        self.waiting.append((slot, prompt, request))

    def step(self) -> tuple[list[Answer], list]:
        """Make a step with the new prompts; returns what `_step` does.

        RunError: the step fails, on this rank or on one that shares the engine
        """
        self._exchange(waits=False)
        return self._step()

    def serve_others(self) -> None:
        """Go on with steps until all ranks that share the engine have called this.

        A rank calls it before it waits for other ranks. Its own prompts are complete, or of a batch
        that breaks off. RanksApart: see `Sharing.tell`
        """
        if self.ranks.failure:
            self.ranks.tell()
            return
        while not self._exchange(waits=True):
            self._step()

    def _exchange(self, waits: bool) -> bool:
        """Hand the new requests of all ranks to vLLM, on each rank in the same order.

        waits: whether this rank has stopped to ask. Returns whether all have
        """
        mine, self.waiting = self.waiting, []
        told = self.ranks.gather((waits, [request for _, _, request in mine]))
        for rank, (_, requests) in enumerate(told):
            for number, request in enumerate(requests):
                own = mine[number] if rank == self.ranks.rank else None
                name = next(self.names)
                self.add_request(name, request)
                self.sampled[name] = own
        return all(waits for waits, _ in told)

    def _step(self) -> tuple[list[Answer], list]:
        """Step vLLM. Returns answers of this rank, and what `sampled` had of each prompt that vLLM
        has dropped."""
        with self.ranks.step(), as_run_error("vLLM fails in a step", REMEDY), together():
            outputs = self.llm_engine.step()
        answers, lost = [], []
        for out in outputs:
            answer = out.outputs[0]
            if answer.token_ids and answer.finish_reason in ("stop", "length"):
                if own := self.sampled.pop(out.request_id):
                    slot, prompt, _ = own
                    ids, logps = list(answer.token_ids), list(answer.logprobs.logprobs)
                    answers.append(Answer(slot, prompt, ids, logps, out.num_cached_tokens or 0))
        if not self.llm_engine.has_unfinished_requests():
            lost, self.sampled = list(self.sampled.values()), {}
        return answers, lost
