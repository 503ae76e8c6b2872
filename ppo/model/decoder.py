"""A Hugging Face decoder in pieces: what the actor, the critic, the reference and clones share.

`embed` and `decode` are its forward pass up to the last layer, for some layers only where a branch
leaves; `token_logps` is the softmax at response positions, (R,) in row-major order, R =
response_mask.sum(). The shift by one between a token and the hidden state that predicts it happens
in `decisions_of`, and nowhere else.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from ppo.model.packing import pack

LOGITS_PER_CHUNK = 2**25  # entries of the (tokens, V) block that exists at a time


def response_logps(lm, ids, response_mask, temperature: float, dtype=torch.float32) -> Tensor:
    """Log-probs of the response tokens under the plain model, (R,)."""
    with precision(ids.device, dtype):
        hidden, how, response_mask, tokens = embed(lm, ids, response_mask, dtype)
        decisions = lm.model.norm(decisions_of(decode(lm.model.layers, hidden, how), response_mask))
        return token_logps(lm, decisions, tokens, temperature)[0]


def choose_dtype(name: str, device: str) -> torch.dtype:
    """auto: bfloat16 on a GPU, float32 on a CPU."""
    if name == "auto":
        name = "bfloat16" if device.startswith("cuda") else "float32"
    return getattr(torch, name)


def precision(device: torch.device, dtype: torch.dtype):
    """Matrix products in `dtype`, whatever the dtype of the weights."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)


def embed(lm, ids: Tensor, response_mask: Tensor, dtype: torch.dtype = torch.float32):
    """What the decoder layers start from: hidden states (B, L, D), how to go on (arguments of each
    layer), response_mask (B, L) and the response tokens (R,). Packed, it is one row: (1, P, ...).

    Padded rows are so on the right and attention is causal, so no real token ever sees padding:
    there is no attention mask and position_ids are 0..L-1 in every row.
    """
    tokens = ids[response_mask]
    positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
    how = dict(attention_mask=None)
    if lm.config._attn_implementation == "packed":
        ids, response_mask, positions, how["turns"] = pack(ids, response_mask)
    hidden = lm.model.embed_tokens(ids).to(dtype)
    how["position_embeddings"] = lm.model.rotary_emb(hidden, positions)
    return hidden, how, response_mask, tokens


def decode(layers, hidden: Tensor, how: dict, recompute: bool = False) -> Tensor:
    for layer in layers:
        if recompute and torch.is_grad_enabled():
            hidden = checkpoint(layer, hidden, use_reentrant=False, **how)
        else:
            hidden = layer(hidden, **how)
    return hidden


def decisions_of(hidden: Tensor, response_mask: Tensor) -> Tensor:
    """(B, L, D) -> (R, D): the hidden state before each response token, which predicts it."""
    return hidden[:, :-1][response_mask[:, 1:]]


def token_logps(lm, decisions: Tensor, tokens: Tensor, temperature: float, entropy_grad=False):
    """Log-probs and entropies (R,) of `tokens` given `decisions` (R, D), softmax in fp32.

    The (R, V) logits never exist at once: chunks of tokens, recomputed in the backward pass.
    """
    weight = lm.lm_head.weight  # once: where it is sharded each use would be a collective
    size = max(1, LOGITS_PER_CHUNK // lm.config.vocab_size)
    recompute = len(tokens) > size and torch.is_grad_enabled()
    chunks = []
    for h, t in zip(decisions.split(size), tokens.split(size), strict=True):
        arguments = (weight, h, t, temperature, entropy_grad)
        if recompute:
            chunks.append(checkpoint(_chunk_logps, *arguments, use_reentrant=False))
        else:
            chunks.append(_chunk_logps(*arguments))
    logps, entropies = zip(*chunks, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def _chunk_logps(weight, decisions: Tensor, tokens: Tensor, temperature: float, entropy_grad):
    logits = linear(decisions, weight).float() / temperature  # (r, V)
    log_total = logits.logsumexp(-1)
    logps = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - log_total
    exact = precision(logits.device, torch.float32)  # autocast would take the product in bf16
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()), exact:
        # H = log sum exp(z) - sum p z
        p = (logits - log_total.unsqueeze(-1)).exp()
        entropies = log_total - torch.linalg.vecdot(p, logits)
    return logps, entropies


def check_decoder(lm) -> int:
    """The number of decoder layers, if `embed` and `decode` compute what the model itself does.

    ValueError for architectures whose forward pass is more than embeddings, rotary positions and
    a chain of decoder layers with full causal attention.
    """
    known = "supported are Llama-like decoders with full attention (Llama, Qwen2, Qwen3, ...)"
    body = getattr(lm, "model", None)
    parts = all(hasattr(body, part) for part in ("embed_tokens", "layers", "rotary_emb", "norm"))
    head = getattr(getattr(lm, "lm_head", None), "bias", None)
    if not parts or head is not None or getattr(lm.config, "sliding_window", None):
        raise ValueError(f"cannot build a critic branch on {type(lm).__name__}: {known}")
    ids = torch.arange(8, device=lm.device).unsqueeze(0) % lm.config.vocab_size
    with torch.no_grad():
        hidden, how, *_ = embed(lm, ids, torch.ones_like(ids, dtype=torch.bool))
        hidden = decode(body.layers, hidden, how)
        ours, theirs = body.norm(hidden), body(ids, use_cache=False).last_hidden_state
    if not torch.allclose(ours, theirs, atol=1e-3, rtol=1e-2):
        raise ValueError(f"{type(lm).__name__} does more than its decoder layers: {known}")
    return len(body.layers)
