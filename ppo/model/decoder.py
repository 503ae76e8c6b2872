"""The forward pass of a Hugging Face decoder, in pieces that actor, critic and reference share.

    ids --embed--> hidden --decode--> hidden --decide--> (R, D) --token_logps--> (R,)

Numbers per token are computed at the R response positions only and returned flat, in row-major
order: prompt tokens are given to the policy, not chosen by it, so no loss needs them.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from common.plugins import UserError
from ppo.model.packing import pack
from storage.minibatch import MicroBatch

PARTS = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}  # of a plain layer
LOGITS_PER_CHUNK = 2**25  # entries of the (tokens, V) block that exists at a time: 128 MiB in fp32


def response_logps(lm, batch: MicroBatch, dtype=torch.float32) -> Tensor:
    """Return the log-probs (R,) of the response tokens of a batch under the plain model."""
    with precision(batch.ids.device, dtype):
        hidden, layout, response_mask = embed(lm, batch.ids, batch.response_mask, dtype)
        decisions = lm.model.norm(decide(lm.model.layers, hidden, layout, response_mask))
        return token_logps(lm, decisions, batch.tokens, batch.temperature)[0]


def embed(lm, ids: Tensor, response_mask: Tensor, dtype=torch.float32):
    """Return (hidden, layout, response_mask), which is what the decoder layers start from.

    hidden: (B, L, D); layout: keyword arguments that tell each layer where the tokens stand;
    response_mask: (B, L). A packed batch is one row, (1, P, D).
    """
    # Padding stands on the right, so causal attention never looks at it and needs no mask.
    positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
    layout = dict(attention_mask=None)
    if lm.config._attn_implementation == "packed":
        ids, response_mask, positions, layout["turns"] = pack(ids, response_mask)
    # Autocast casts matrix products only; the residual stream keeps the dtype it starts with.
    hidden = lm.model.embed_tokens(ids).to(dtype)
    layout["position_embeddings"] = lm.model.rotary_emb(hidden, positions)
    return hidden, layout, response_mask


def decode(layers, hidden: Tensor, layout: dict, recompute: bool = False) -> Tensor:
    """Run some decoder layers, (B, L, D) -> (B, L, D)."""
    for layer in layers:
        hidden = _recomputed(layer, recompute)(hidden, **layout)
    return hidden


def decide(layers, hidden: Tensor, layout: dict, response_mask: Tensor, recompute: bool = False):
    """Run the top decoder layers, (B, L, D) -> (R, D): the state before each response token."""
    if not (layers and is_plain(layers[-1])):
        return decisions_of(decode(layers, hidden, layout, recompute), response_mask)
    hidden = decode(layers[:-1], hidden, layout, recompute)
    return _recomputed(_top_layer, recompute)(layers[-1], hidden, layout, response_mask)


def is_plain(layer) -> bool:
    """Whether `_top_layer` computes a layer: by its parts. `check_decoder` compares the results."""
    return {name for name, _ in layer.named_children()} == PARTS


def _top_layer(layer, hidden: Tensor, layout: dict, response_mask: Tensor) -> Tensor:
    attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden), **layout)
    # No layer attends to what this one makes of prompt tokens. So its MLP, most of its work, runs
    # at the response positions alone.
    decisions = decisions_of(hidden + attended, response_mask)[None]  # (1, R, D), as experts want
    return (decisions + layer.mlp(layer.post_attention_layernorm(decisions)))[0]


def _recomputed(function, recompute: bool):
    """Return `function`, or a version that recomputes its activations in the backward pass."""
    if not (recompute and torch.is_grad_enabled()):
        return function
    # A reentrant checkpoint gives no gradient to the critic's layers, whose input is detached.
    return partial(checkpoint, function, use_reentrant=False)


def decisions_of(hidden: Tensor, response_mask: Tensor) -> Tensor:
    """(B, L, D) -> (R, D): the hidden state before each response token, which predicts it."""
    # This is the only shift by one: elsewhere index t is about token t, and V[t] about the state
    # before it. A turn begins with its prompt, so in a packed row that state is of the same turn.
    return hidden[:, :-1][response_mask[:, 1:]]


def token_logps(lm, decisions: Tensor, tokens: Tensor, temperature: Tensor, entropy_grad=False):
    """Return log-probs and entropies of `tokens` (R,) given `decisions` (R, D), both (R,).

    temperature: of each token, (R,)

    Entropies are for the update alone: where gradients are off, they are (0,).
    """
    weight = lm.lm_head.weight  # read once: where it is sharded, each access is a collective
    # The (R, V) logits never exist at once: with V = 150,000 those of 4,096 tokens are 2.5 GB.
    size = max(1, LOGITS_PER_CHUNK // lm.config.vocab_size)
    # Autograd would keep the logits of every chunk; a single chunk is small enough to keep.
    chunk_logps = _recomputed(_chunk_logps, len(tokens) > size)
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


def choose_dtype(name: str, device: str) -> torch.dtype:
    """Return the dtype of --dtype; "auto" is bfloat16 on a GPU and float32 on a CPU."""
    auto = "bfloat16" if device.startswith("cuda") else "float32"
    return getattr(torch, auto if name == "auto" else name)


def check_decoder(lm) -> int:
    """Return the number of decoder layers. ValueError: the pieces above do not give its logits."""
    known = "supported are Llama-like decoders with full attention (Llama, Qwen2, Qwen3, ...)"
    body = getattr(lm, "model", None)
    parts = all(hasattr(body, part) for part in ("embed_tokens", "layers", "rotary_emb", "norm"))
    # The comparison below sees no window that is longer than its eight tokens.
    if not (parts and hasattr(lm, "lm_head")) or getattr(lm.config, "sliding_window", None):
        raise UserError(f"cannot build a critic branch on {type(lm).__name__}: {known}")
    ids = torch.arange(8, device=lm.device).unsqueeze(0) % lm.config.vocab_size
    with torch.no_grad():
        hidden, layout, mask = embed(lm, ids, torch.ones_like(ids, dtype=torch.bool))
        decisions = body.norm(decide(body.layers, hidden, layout, mask))
        logits = linear(decisions, lm.lm_head.weight)  # after each token but the last
        # Small logits would hide a soft cap. So the head's are made larger here, up to 100.
        factor = 100 / logits.abs().max()
        with lm.lm_head.register_forward_hook(lambda head, inputs, output: factor * output):
            theirs = lm(ids, use_cache=False).logits[0, :-1]
    if not (factor * logits - theirs).abs().max() <= 1:  # nor where one of them is nan
        raise UserError(f"{type(lm).__name__} does more than its layers and lm_head: {known}")
    return len(body.layers)
