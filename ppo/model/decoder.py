"""The forward pass of a Hugging Face decoder, in pieces that actor, critic and reference share.

    ids --embed--> hidden --decode--> hidden --decide--> (R, D) --token_logps--> (R,)

Numbers per token are computed at the R response positions only and returned flat, in row-major
order: prompt tokens are given to the policy, not chosen by it, so no loss needs them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from storage.minibatch import MicroBatch

PARTS = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}  # of a plain layer
LOGITS_PER_CHUNK = 2**25  # entries of the (tokens, V) block that exists at a time: 128 MiB in fp32


def padded(ids: Tensor, response_mask: Tensor) -> tuple[Tensor, Tensor, Tensor, dict]:
    """Return ids and response_mask (B, L), positions (1, L) and options of every layer."""
    # Padding stands on the right, so causal attention never looks at it and needs no mask.
    positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
    return ids, response_mask, positions, dict(attention_mask=None)


def stored(function: Callable) -> Callable:
    """Keep the activations of `function` for the backward pass, as autograd does by itself."""
    return function


def recomputed(function: Callable) -> Callable:
    """Return a version of `function` that computes its activations again in the backward pass."""
    if not torch.is_grad_enabled():
        return function
    # A reentrant checkpoint gives no gradient to the critic's layers, whose input is detached.
    return partial(checkpoint, function, use_reentrant=False)


@dataclass(frozen=True)
class Compute:
    """How the layers compute. The results are the same, but for rounding.

    dtype: of activations and matrix products; trained parameters and the softmax are fp32
    arrange: how the rows of a micro-batch are laid out: `padded`, or `ppo.model.packing.packed`
    activations: of each layer: `stored`, or `recomputed` in the backward pass
    """

    dtype: torch.dtype = torch.float32
    arrange: Callable = padded
    activations: Callable = stored


PLAIN = Compute()


def response_logps(lm, batch: MicroBatch, compute: Compute = PLAIN) -> Tensor:
    """Return the log-probs (R,) of the response tokens of a batch under the plain model."""
    with precision(batch.ids.device, compute.dtype):
        hidden, mask, options = embed(lm, batch.ids, batch.response_mask, compute)
        decisions = lm.model.norm(decide(lm.model.layers, hidden, mask, options, compute))
        return token_logps(lm, decisions, batch.tokens, batch.temperature)[0]


def embed(lm, ids: Tensor, response_mask: Tensor, compute: Compute) -> tuple[Tensor, Tensor, dict]:
    """Return hidden (B, L, D), response_mask (B, L) and the options that each layer is given."""
    ids, response_mask, positions, options = compute.arrange(ids, response_mask)
    # Autocast casts matrix products only; the residual stream keeps the dtype it starts with.
    hidden = lm.model.embed_tokens(ids).to(compute.dtype)
    rotations = lm.model.rotary_emb(hidden, positions)
    return hidden, response_mask, dict(options, position_embeddings=rotations)


def decode(layers, hidden: Tensor, options: dict, compute: Compute) -> Tensor:
    """Run some decoder layers, (B, L, D) -> (B, L, D)."""
    for layer in layers:
        hidden = compute.activations(layer)(hidden, **options)
    return hidden


def decide(layers, hidden: Tensor, mask: Tensor, options: dict, compute: Compute) -> Tensor:
    """Run the top decoder layers, (B, L, D) -> (R, D): the state before each response token."""
    if not (layers and is_plain(layers[-1])):
        return decisions_of(decode(layers, hidden, options, compute), mask)
    hidden = decode(layers[:-1], hidden, options, compute)
    return compute.activations(_top_layer)(layers[-1], hidden, mask, options)


def is_plain(layer) -> bool:
    """Return whether `_top_layer` computes a layer, judged by the names of its parts."""
    return {name for name, _ in layer.named_children()} == PARTS


def _top_layer(layer, hidden: Tensor, mask: Tensor, options: dict) -> Tensor:
    attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden), **options)
    # No layer attends to what this one makes of prompt tokens. So its MLP, most of its work, runs
    # at the response positions alone.
    decisions = decisions_of(hidden + attended, mask)[None]  # (1, R, D), as experts want
    return (decisions + layer.mlp(layer.post_attention_layernorm(decisions)))[0]


def decisions_of(hidden: Tensor, response_mask: Tensor) -> Tensor:
    """(B, L, D) -> (R, D): the hidden state before each response token, which predicts it."""
    # This is the only shift by one: elsewhere index t is about token t, and V[t] about the state
    # before it. A turn begins with its prompt, so in a packed row that state is of the same turn.
    return hidden[:, :-1][response_mask[:, 1:]]


def token_logps(lm, decisions: Tensor, tokens: Tensor, temperature: Tensor, entropy_grad=False):
    """Return log-probs and entropies of `tokens` (R,) given `decisions` (R, D), both (R,).

    temperature: (R,), at which each token was sampled
    entropy_grad: whether entropies carry a gradient. Where gradients are off, they are (0,).
    """
    weight = lm.lm_head.weight  # read once: where it is sharded, each access is a collective
    # The (R, V) logits never exist at once: with V = 150,000 those of 4,096 tokens are 2.5 GB.
    size = max(1, LOGITS_PER_CHUNK // lm.config.vocab_size)
    # Autograd would keep the logits of every chunk; a single chunk is small enough to keep.
    chunk_logps = recomputed(_chunk_logps) if len(tokens) > size else _chunk_logps
    chunks = zip(*(part.split(size) for part in (decisions, tokens, temperature)), strict=True)
    scores = [chunk_logps(weight, h, t, warm, entropy_grad) for h, t, warm in chunks]
    logps, entropies = zip(*scores, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def _chunk_logps(weight, decisions: Tensor, tokens: Tensor, temperature: Tensor, entropy_grad):
    # In fp32: bfloat16 rounds a log-prob near -5 by up to .016, and the ratio moves by as much.
    logits = linear(decisions, weight).float() / temperature.unsqueeze(-1)  # (r, V)
    log_total = logits.logsumexp(-1)
    logps = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - log_total
    if not torch.is_grad_enabled():
        return logps, logps.new_empty(0)
    exact = precision(logits.device, torch.float32)  # autocast would take the product in bf16
    # Without an entropy bonus nothing asks for this gradient, and autograd need not keep p.
    with torch.set_grad_enabled(entropy_grad), exact:
        p = (logits - log_total.unsqueeze(-1)).exp()
        entropies = log_total - torch.linalg.vecdot(p, logits)  # H = log sum exp(z) - sum p z
    return logps, entropies


def precision(device: torch.device, dtype: torch.dtype):
    """Return a context in which matrix products are computed in `dtype`, by autocast."""
    # Autocast casts copies, so that trained weights can stay in fp32: next to a weight of .02
    # the numbers of bfloat16 are 1e-4 apart, and AdamW's steps of 1e-6 would be lost.
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)
