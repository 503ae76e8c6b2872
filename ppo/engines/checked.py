"""The engine's part of the test of a model: what it samples at first is scored by the trainer.

`ppo.model.acceptance` has compared the trainer's ways to score a turn. The engine answers the same
two turns after the first push of the weights, and its log-probs must be those of the trainer.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from common.chat import Sampling
from common.errors import RunError, as_run_error
from common.wrapper import Wrapper
from ppo.engines.gap import explained_gap
from ppo.model.acceptance import ASKED, test_turns
from storage.minibatch import MicroBatch

ANSWER = 8  # most tokens of an answer


@dataclass(frozen=True)
class Probe:
    """A prompt that the engine answers at the run's temperature."""

    ids: list[int]
    opened: str = ""
    sampling: Sampling = Sampling(max_tokens=ANSWER)


class CheckedEngine(Wrapper):
    """An engine that is checked when it gets its first weights.

    prompt_limit: longest prompt of the run in tokens
    """

    def __init__(self, engine, prompt_limit: int):
        super().__init__(engine)
        self.prompt_limit, self.checked = prompt_limit, False

    def push_weights(self, actor_critic) -> None:
        """Hand the weights over. RunError: the first ones are not what the engine samples with"""
        self.inner.push_weights(actor_critic)
        if not self.checked:
            check_first_push(self.inner, actor_critic, self.prompt_limit)
            self.inner.stats()  # nobody asks for figures of the test
            self.checked = True


@torch.no_grad()
def check_first_push(engine, actor_critic, prompt_limit: int) -> None:
    """RunError: the engine fails at a prompt, or its log-probs are not the trainer's"""
    other = "--engine vllm" if engine.name == "TransformersEngine" else "--engine transformers"
    turns, gaps = test_turns(actor_critic.lm, prompt_limit + engine.response_limit), []
    with as_run_error(f"{engine.name} fails at a prompt", f"try {other}"):
        for slot, (ids, asked) in enumerate(zip(*turns, strict=True)):
            prompt = ids[: min(int(asked.nonzero()[-1]) + 1 - ASKED, prompt_limit)].tolist()
            engine.submit(slot, Probe(prompt), (slot,))  # together, so that the shorter is padded
        responses = []
        while not engine.idle:
            responses += [response for _, response in engine.step()]
    # Ranks may share the engine, and the model: they take part in one thing at a time.
    for response in responses:
        prompt, got, logps = response.prompt.ids, response.ids, response.logps
        gaps.append(token_gaps(actor_critic, prompt, got, logps, response.temperature))
    dtype = str(actor_critic.dtype).removeprefix("torch.")
    gap = torch.cat(gaps).mean().item()
    explained = explained_gap(dtype, engine.temperature, random_ids=True)
    if not gap <= explained:
        raise RunError(
            f"{engine.name} does not compute what the trainer does: on prompts of "
            f"{turns[0].shape[1]} tokens their log-probs differ by {gap:.2g} per token, rounding "
            f"explains {explained:g} in {dtype}; try {other}"
        )


def token_gaps(
    actor_critic, prompt_ids: list[int], ids: list[int], logps: list[float], temperature: float
) -> Tensor:
    """Return |log-prob difference| between the engine and the trainer per response token, (R,).

    logps: the engine's; those of greedy sampling, temperature 0, are at temperature 1
    """
    batch = one_row(prompt_ids, ids, temperature or 1.0, actor_critic.lm.device)
    trainers = actor_critic(batch, part="actor").logps.float().cpu()
    return (trainers - torch.tensor(logps)).abs()


def one_row(prompt_ids: list[int], ids: list[int], temperature: float, device) -> MicroBatch:
    """Return a prompt and its response as a micro-batch of one turn."""
    tokens = torch.tensor(ids, device=device)  # (R,)
    row = torch.tensor([*prompt_ids, *ids], device=device)[None]  # (1, L)
    mask = torch.arange(row.shape[1], device=device)[None] >= len(prompt_ids)
    temperatures = torch.full(tokens.shape, temperature).to(device)
    return MicroBatch(torch.tensor([0]), row, mask, tokens, temperatures)
