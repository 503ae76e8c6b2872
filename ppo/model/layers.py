"""Models whose layers differ: local, chunked and linear attention, rotations of several kinds.

Each layer of a plain decoder gets the same options. Here each gets its own, as in the model's
forward pass: the attention mask and the rotation of its kind ("sliding_attention", ...), which
transformers makes from the model's config.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from transformers.masking_utils import LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING as MASKS

from ppo.model import decoder
from ppo.model.decoder import Compute, padded
from ppo.model.packing import packed

STATES = {"linear_attention", "conv"}  # kinds of layers with a state that runs along a row


def with_own_options(lm, compute: Compute) -> Compute:
    """Return `compute` with the model's own options for each layer. Rows are padded."""
    layer_kinds = kinds(lm.config)
    if layer_kinds and not isinstance(lm.model.rotary_emb, Rotations):
        lm.model.rotary_emb = Rotations(lm.model.rotary_emb, sorted(set(layer_kinds)))
    activations = OwnOptions(compute.activations, tuple(layer_kinds))
    return Compute(compute.dtype, partial(with_masks, lm.config), activations)


def kinds(config) -> list[str]:
    """Return the kind of each layer; an empty list if the config knows only one."""
    return list(getattr(config, "layer_types", None) or [])


def with_masks(config, ids: Tensor, response_mask: Tensor):
    """Return what `decoder.padded` returns, with the masks of the model: one, or one for each kind
    of layer."""
    ids, response_mask, positions, _ = padded(ids, response_mask)
    given = dict(
        config=config,
        inputs_embeds=torch.empty(*ids.shape, 1, device=ids.device),  # its shape and dtype are read
        attention_mask=None,
        past_key_values=None,
        position_ids=positions,
    )
    if kinds(config):
        masks = {kind: MASKS[kind](**given) for kind in sorted(set(kinds(config)))}
    else:
        masks = MASKS["sliding_attention"](**given)
    return ids, response_mask, positions, dict(attention_mask=masks, position_ids=positions)


def with_turns(lm, compute: Compute) -> Compute:
    """Return `compute` with packed rows. Layers with a state are told where turns end; kernels that
    know of it (flash-linear-attention, causal-conv1d) cut the state there."""
    layer_kinds = kinds(lm.config)
    if not STATES & set(layer_kinds):
        return Compute(compute.dtype, packed, compute.activations)
    activations = OwnOptions(compute.activations, tuple(layer_kinds))
    return Compute(compute.dtype, partial(with_borders, sorted(set(layer_kinds))), activations)


def with_borders(kinds: list[str], ids: Tensor, response_mask: Tensor):
    """Return what `packing.packed` returns, with the borders of turns as transformers' layers with
    a state take them."""
    ids, response_mask, positions, options = packed(ids, response_mask)
    turns = options["attention_mask"]
    lengths = turns.ends.diff()
    numbers = torch.arange(len(lengths), dtype=torch.int32, device=ids.device)
    masks = {kind: None if kind in STATES else turns for kind in kinds}
    borders = dict(seq_idx=numbers.repeat_interleave(lengths)[None], cu_seq_lens_q=turns.ends)
    return ids, response_mask, positions, dict(attention_mask=masks, **borders)


def is_packed(compute: Compute) -> bool:
    """Return whether rows are packed, by `packing.packed` or by `with_borders`."""
    return compute.arrange is packed or getattr(compute.arrange, "func", None) is with_borders


class Rotations(nn.Module):
    """The rotary embedding of a model that may have one for each kind of layer.

    Without a kind it returns them all by kind. It has no weights.
    """

    def __init__(self, rotary: nn.Module, kinds: list[str]):
        super().__init__()
        self.rotary, self.kinds = rotary, kinds

    def forward(self, hidden: Tensor, positions: Tensor | None = None, kind=None, **options):
        positions = options.pop("position_ids", positions)
        kind = options.pop("layer_type", kind)
        if kind is not None:
            return self.rotary(hidden, positions, kind)
        if not hasattr(self.rotary, "layer_types"):
            return self.rotary(hidden, positions)
        return {kind: self.rotary(hidden, positions, kind) for kind in self.kinds}


@dataclass(frozen=True)
class OwnOptions:
    """The `activations` of a Compute whose layers have options of their own.

    activations: `decoder.stored` or `decoder.recomputed`; kinds: of each layer
    """

    activations: Callable
    kinds: tuple[str, ...]

    def __call__(self, function: Callable) -> Callable:
        if function is decoder._top_layer:
            return self._top_layer
        if not isinstance(function, nn.Module):  # a chunk of logits, which has no options
            return self.activations(function)
        run = self.activations(function)
        return lambda hidden, **options: run(hidden, **self._of(function, options))

    def _top_layer(self, layer, hidden: Tensor, mask: Tensor, options: dict) -> Tensor:
        """Run a layer whole: its MLP may return more than a hidden state (gpt-oss)."""
        return decoder.decisions_of(self(layer)(hidden, **options), mask)

    def _of(self, layer: nn.Module, options: dict) -> dict:
        if not self.kinds:
            return options
        numbers = (part.layer_idx for part in layer.modules() if hasattr(part, "layer_idx"))
        kind = self.kinds[next(numbers)]
        return {
            name: value[kind] if isinstance(value, dict) else value
            for name, value in options.items()
        }
