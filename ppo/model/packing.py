"""Training without padding: the turns of a micro-batch, one after the other in a single row.

`pack` takes the padding out of a micro-batch, `attend` is the attention of the row that results:
each turn sees itself alone. On CUDA one kernel does it (torch.nn.attention.varlen, bf16); elsewhere
turn after turn, which is slow and there for tests. Positions start at 0 in every turn.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


@dataclass
class Turns:
    """Where the turns of a packed row are. ends: (B + 1,) int32, from 0 to the row's length."""

    ends: Tensor
    longest: int


def pack(ids: Tensor, response_mask: Tensor):
    """(B, L) padded on the right -> (1, P) each, positions (1, P) and where the turns are.

    A turn ends with its last response token; one without any keeps what could be a prompt's end and
    a response.
    """
    rest = response_mask.flip(1).cumsum(1).flip(1)  # response tokens from here on
    kept = rest > 0
    kept[~response_mask.any(1), :2] = True
    lengths = kept.sum(1)  # (B,)
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)[kept]
    turns = Turns(ends.to(torch.int32), int(lengths.max()))
    row = lambda tensor: tensor.unsqueeze(0)
    return row(ids[kept]), row(response_mask[kept]), row(positions), turns


def attend(module, query: Tensor, key: Tensor, value: Tensor, attention_mask, **options):
    """Causal attention within turns, as transformers asks for it.

    query: (1, H, P, D), key and value with their own number of heads -> (1, P, H, D). Where no
    turns are given (generation) it is transformers' SDPA.
    """
    turns = options.pop("turns", None)
    if turns is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    # Norms of queries and keys (Qwen3) give fp32 back, which the kernel does not take with bf16.
    query, key = query.to(value.dtype), key.to(value.dtype)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scale = options["scaling"]
    if query.is_cuda:
        from torch.nn.attention.varlen import varlen_attn

        flat = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]  # (P, H, D)
        ends, longest = turns.ends, turns.longest
        causal = dict(scale=scale, window_size=(-1, 0))
        return varlen_attn(*flat, ends, ends, longest, longest, **causal).unsqueeze(0), None
    lengths = turns.ends.diff().tolist()
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
    seen = [scaled_dot_product_attention(*part, is_causal=True, scale=scale) for part in parts]
    return torch.cat(seen, dim=2).transpose(1, 2), None


def use_packing(lm) -> None:
    """Let the model's layers attend by `attend`."""
    AttentionInterface.register("packed", attend)
    AttentionMaskInterface.register("packed", sdpa_mask)
    lm.config._attn_implementation = "packed"
