"""Training without padding: the turns of a micro-batch stand one after the other in a single row.

`pack` makes the row, and in `attend` each turn attends only to itself. On CUDA one kernel computes
it (torch.nn.attention.varlen, bf16). Elsewhere a loop over turns does; it is slow and for tests.
"""

from dataclasses import dataclass
from functools import partial
from inspect import signature

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


@dataclass
class Turns:
    """Where the turns of a packed row stand: turn b is the tokens ends[b] .. ends[b + 1] - 1."""

    ends: Tensor  # (B + 1,) int32, from 0 to the length of the row
    longest: int  # tokens


def packed(ids: Tensor, response_mask: Tensor) -> tuple[Tensor, Tensor, Tensor, dict]:
    """Lay out a micro-batch as one row, (1, P). Stands in for `decoder.padded`."""
    ids, response_mask, positions, turns = pack(ids, response_mask)
    # In the place of the mask, for each layer hands that on; some drop what they do not know.
    return ids, response_mask, positions, dict(attention_mask=turns)


def use_packing(lm) -> str:
    """Let the layers of the model attend by `attend`. Returns the name of how they attended."""
    # transformers finds both by this name. The mask is for generation, which is never packed.
    AttentionInterface.register("packed", attend)
    AttentionMaskInterface.register("packed", generation_mask)
    before, lm.config._attn_implementation = lm.config._attn_implementation, "packed"
    return before


def stop_packing(lm, before: str) -> None:
    """Undo `use_packing`. before: what it returned"""
    lm.config._attn_implementation = before


def generation_mask(*args, **options):
    """Return the mask of rows that are not packed; never None, which means that turns are lost."""
    return sdpa_mask(*args, **(options | {"allow_is_causal_skip": False}))


def pack(ids: Tensor, response_mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Turns]:
    """(B, L), padded on the right -> ids, response_mask and positions, each (1, P), and the Turns.

    A turn ends with its last response token; a turn without one keeps its first two tokens.
    """
    kept = response_mask.flip(1).cumsum(1).flip(1) > 0  # where a response token is here or ahead
    # A rank that runs out of turns gets a dummy without a response, and a row must not be empty.
    kept[~response_mask.any(1), :2] = True
    lengths = kept.sum(1)  # (B,)
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    # Each turn counts its positions from 0, as it does when it is generated.
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)[kept]
    turns = Turns(ends.to(torch.int32), int(lengths.max()))
    return ids[kept][None], response_mask[kept][None], positions[None], turns


def attend(module, query, key, value, attention_mask: Turns | Tensor, **options):
    """Causal attention within turns, with the signature that transformers asks for.

    query: (1, H, P, D); key and value: the same with their own number of heads -> (1, P, H, D)
    attention_mask: where the turns stand, or the mask of generation, whose prompts are not packed
    """
    assert attention_mask is not None, f"{type(module).__name__} has lost the turns of its row"
    turns = attention_mask
    if not isinstance(turns, Turns):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    # The kernel wants one dtype, but Qwen3's norms return queries and keys in fp32 under autocast.
    query, key = query.to(value.dtype), key.to(value.dtype)
    attend_turns = _attend_by_kernel if query.is_cuda else _attend_one_by_one
    return attend_turns(query, key, value, turns, options["scaling"]), None


def _attend_by_kernel(query: Tensor, key: Tensor, value: Tensor, turns: Turns, scale: float):
    from torch.nn.attention.varlen import varlen_attn  # here: it is for CUDA alone

    options = dict(scale=scale, window_size=(-1, 0))  # a token sees all before it, nothing after it
    if "enable_gqa" in signature(varlen_attn).parameters:  # torch 2.13
        options["enable_gqa"] = True  # query heads share a key head, which is not repeated
    else:
        key, value = repeated(query, key, value)
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))  # (P, H, D) each
    ends, longest = turns.ends, turns.longest
    return varlen_attn(q, k, v, ends, ends, longest, longest, **options).unsqueeze(0)


def _attend_one_by_one(query: Tensor, key: Tensor, value: Tensor, turns: Turns, scale: float):
    key, value = repeated(query, key, value)
    lengths = turns.ends.diff().tolist()
    split = (tensor.split(lengths, dim=2) for tensor in (query, key, value))
    attend_turn = partial(scaled_dot_product_attention, is_causal=True, scale=scale)
    attended = [attend_turn(q, k, v) for q, k, v in zip(*split, strict=True)]
    return torch.cat(attended, dim=2).transpose(1, 2)


def repeated(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return each head of key and value once for each query head that it serves."""
    groups = query.shape[1] // key.shape[1]
    return key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
