"""Compares scores and gradients of padded rows with those of packed rows, and both with fp32."""

import torch
from torch import Tensor

from ppo.model.make import build
from storage.minibatch import MicroBatch

ALLOWED = 2.0  # packed rows may be this many times as far from fp32 as padded ones


def make_model(lm, dtype: torch.dtype, packed: bool):
    """Put an actor-critic of the model together whose critic says something."""
    lm.config._attn_implementation = "sdpa"  # a model that packs has changed it
    model = build(lm, 2, dtype=dtype, recompute=True, packed=packed).to(lm.device)
    torch.manual_seed(1)
    torch.nn.init.normal_(model.head.weight, std=0.02)
    return model


def make_turns(vocab_size: int, device, turns: int, prompt: int, response: int) -> MicroBatch:
    """Make turns of random ids and lengths, each in a row of `prompt` + `response` tokens."""
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(vocab_size, (turns, prompt + response), generator=rng)
    prompts = torch.randint(prompt // 4, prompt, (turns, 1), generator=rng)
    responses = torch.randint(response // 4, response, (turns, 1), generator=rng)
    position = torch.arange(prompt + response)
    mask = (position >= prompts) & (position < prompts + responses)
    ids, mask = ids.to(device), mask.to(device)
    temperature = torch.ones(int(mask.sum()), device=device)
    return MicroBatch(torch.arange(turns), ids, mask, ids[mask], temperature)


def differentiate(model, batch: MicroBatch) -> dict[str, Tensor]:
    """Score the turns and differentiate a loss on them. Returns the scores and three gradients."""
    model.zero_grad()
    out = model(batch)
    (out.logps.mean() + out.values.square().mean()).backward()
    layers = model.lm.model.layers
    return {
        "log-probs": out.logps.detach(),
        "values": out.values.detach(),
        "gradient, first layer's values": layers[0].self_attn.v_proj.weight.grad,
        "gradient, last layer's queries": layers[-1].self_attn.q_proj.weight.grad,
        "gradient, branch's queries": model.branch[0].self_attn.q_proj.weight.grad,
    }


def distance(ours: Tensor, exact: Tensor) -> float:
    """Return the relative distance of two tensors."""
    return ((ours - exact).norm() / exact.norm()).item()


def agree(padded: float, packed: float) -> bool:
    """Return whether packed rows are as exact as padded ones. Both: their distance to fp32"""
    return packed <= ALLOWED * padded + 1e-5
