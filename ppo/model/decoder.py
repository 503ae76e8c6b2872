"""The forward pass of a Hugging Face decoder, in pieces that actor, critic and reference share.

    ids --embed--> hidden --decode--> hidden --decisions_of--> (R, D) --token_logps--> (R,)

Numbers per token are computed at response positions only, R = response_mask.sum(), and returned
flat in row-major order: prompt tokens are given to the policy, not chosen by it, so no loss needs
them. `check_decoder` refuses models whose forward pass is more than these pieces.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from ppo.model.packing import pack

LOGITS_PER_CHUNK = 2**25  # entries of the (tokens, V) block that exists at a time: 128 MiB in fp32


def response_logps(lm, ids, response_mask, temperature: float, dtype=torch.float32) -> Tensor:
    """Return the log-probs of the response tokens under the plain model, (R,).

    ids, response_mask: (B, L), padded on the right; the mask is True on sampled tokens
    """
    with precision(ids.device, dtype):
        hidden, layout, response_mask, tokens = embed(lm, ids, response_mask, dtype)
        decoded = decode(lm.model.layers, hidden, layout)
        decisions = lm.model.norm(decisions_of(decoded, response_mask))
        return token_logps(lm, decisions, tokens, temperature)[0]


def embed(lm, ids: Tensor, response_mask: Tensor, dtype: torch.dtype = torch.float32):
    """Return (hidden, layout, response_mask, tokens), which is what the decoder layers start from.

    hidden: (B, L, D); layout: keyword arguments that tell each layer where the tokens stand;
    response_mask: (B, L); tokens: the response tokens, (R,). A packed batch is one row, (1, P, D).
    """
    tokens = ids[response_mask]
    # Padding stands on the right and attention is causal, so no real token ever sees padding. That
    # is why no attention mask is needed and every row has the positions 0 .. L-1.
    positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
    layout = dict(attention_mask=None)
    if lm.config._attn_implementation == "packed":
        ids, response_mask, positions, layout["turns"] = pack(ids, response_mask)
    # Autocast casts matrix products only; the residual stream keeps the dtype it starts with.
    hidden = lm.model.embed_tokens(ids).to(dtype)
    layout["position_embeddings"] = lm.model.rotary_emb(hidden, positions)
    return hidden, layout, response_mask, tokens


def decode(layers, hidden: Tensor, layout: dict, recompute: bool = False) -> Tensor:
    """Run some decoder layers, (B, L, D) -> (B, L, D).

    recompute: store no activations inside a layer; compute them again in the backward pass
    """
    for layer in layers:
        if recompute and torch.is_grad_enabled():
            # A reentrant checkpoint has no gradient where its input has none, and the critic's
            # layers start from detached states.
            hidden = checkpoint(layer, hidden, use_reentrant=False, **layout)
        else:
            hidden = layer(hidden, **layout)
    return hidden


def decisions_of(hidden: Tensor, response_mask: Tensor) -> Tensor:
    """(B, L, D) -> (R, D): the hidden state before each response token, which predicts it."""
    # This is the only shift by one. Everywhere else index t is about token t: its log-prob, its
    # advantage, and V of the state before it. A turn begins with prompt tokens, so in a packed
    # row, too, the state before a response token is of the same turn.
    return hidden[:, :-1][response_mask[:, 1:]]


def token_logps(lm, decisions: Tensor, tokens: Tensor, temperature: float, entropy_grad=False):
    """Return log-probs and entropies of `tokens` (R,) given `decisions` (R, D), both (R,).

    temperature: the sampling temperature; entropy_grad: whether entropies carry a gradient
    """
    weight = lm.lm_head.weight  # read once: where it is sharded, each access is a collective
    # The (R, V) logits never exist at once: with V = 150,000 those of 4,096 tokens are 2.5 GB.
    size = max(1, LOGITS_PER_CHUNK // lm.config.vocab_size)
    # Autograd would keep the logits of every chunk; a single chunk is small enough to keep.
    recompute = len(tokens) > size and torch.is_grad_enabled()
    chunks = []
    for h, t in zip(decisions.split(size), tokens.split(size), strict=True):
        if recompute:
            chunk = checkpoint(
                _chunk_logps, weight, h, t, temperature, entropy_grad, use_reentrant=False
            )
        else:
            chunk = _chunk_logps(weight, h, t, temperature, entropy_grad)
        chunks.append(chunk)
    logps, entropies = zip(*chunks, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def _chunk_logps(weight, decisions: Tensor, tokens: Tensor, temperature: float, entropy_grad):
    # The softmax is in fp32: bfloat16 rounds a log-prob near -5 by up to .016, which would move
    # the probability ratio by as much. The policy is the distribution at the sampling temperature.
    logits = linear(decisions, weight).float() / temperature  # (r, V)
    log_total = logits.logsumexp(-1)
    logps = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - log_total
    exact = precision(logits.device, torch.float32)  # autocast would take the product in bf16
    # Without an entropy bonus nothing asks for this gradient, and autograd need not keep p.
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()), exact:
        # H = log sum exp(z) - sum p z
        p = (logits - log_total.unsqueeze(-1)).exp()
        entropies = log_total - torch.linalg.vecdot(p, logits)
    return logps, entropies


def precision(device: torch.device, dtype: torch.dtype):
    """Return a context in which matrix products are computed in `dtype`, by autocast."""
    # Autocast casts copies, so that trained weights can stay in fp32: next to a weight of .02
    # the numbers of bfloat16 are 1e-4 apart, and AdamW's steps of 1e-6 would be lost.
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)


def choose_dtype(name: str, device: str) -> torch.dtype:
    """Return the dtype of --dtype; "auto" is bfloat16 on a GPU and float32 on a CPU."""
    if name == "auto":
        name = "bfloat16" if device.startswith("cuda") else "float32"
    return getattr(torch, name)


def check_decoder(lm) -> int:
    """Return the number of decoder layers.

    ValueError: the model's forward pass is more than embeddings, rotary positions and a chain of
        decoder layers with full causal attention, so that the pieces above would not compute it
    """
    known = "supported are Llama-like decoders with full attention (Llama, Qwen2, Qwen3, ...)"
    body = getattr(lm, "model", None)
    parts = all(hasattr(body, part) for part in ("embed_tokens", "layers", "rotary_emb", "norm"))
    bias = getattr(getattr(lm, "lm_head", None), "bias", None)
    # The comparison below sees neither the head nor a window longer than its eight tokens.
    if not parts or bias is not None or getattr(lm.config, "sliding_window", None):
        raise ValueError(f"cannot build a critic branch on {type(lm).__name__}: {known}")
    ids = torch.arange(8, device=lm.device).unsqueeze(0) % lm.config.vocab_size
    with torch.no_grad():
        hidden, layout, *_ = embed(lm, ids, torch.ones_like(ids, dtype=torch.bool))
        hidden = decode(body.layers, hidden, layout)
        ours, theirs = body.norm(hidden), body(ids, use_cache=False).last_hidden_state
    if not torch.allclose(ours, theirs, atol=1e-3, rtol=1e-2):
        raise ValueError(f"{type(lm).__name__} does more than its decoder layers: {known}")
    return len(body.layers)
