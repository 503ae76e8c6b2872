"""The actor-critic: one shared trunk, the actor's layers on top of it, and a critic branch.

    ids -> embeddings -> layers below --> top k layers, norm --> lm_head --> log-probs   (actor)
                                     \\--> a copy of them ------> linear head --> values  (critic)

The copy starts as the actor's layers and the fp32 head at zero output; k = 0 is the plain head on
the actor's last hidden state. Everything per token is computed at response positions only and
returned flat: (R,) in row-major order, R = response_mask.sum(). The shift by one between a token
and the hidden state that predicts it happens in `_decisions`, and nowhere else.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LOGITS_PER_CHUNK = 2**25  # entries of the (tokens, V) block that exists at a time


@dataclass
class Scores:
    """What one forward pass says of each response token, all (R,)."""

    logps: Tensor
    entropies: Tensor
    values: Tensor


class ActorCritic(nn.Module):
    """A Hugging Face causal LM with a critic branch of `critic_layers` copied decoder layers.

    temperature: the sampling temperature; log-probs are those of the distribution sampled from
    value_grad_trunk: whether the value loss may move the layers shared with the actor
    """

    def __init__(self, lm, critic_layers: int, temperature: float, value_grad_trunk: bool = False):
        super().__init__()
        n_layers = check_decoder(lm)
        if not 0 <= critic_layers <= n_layers:
            raise ValueError(
                f"--critic-layers must be 0..{n_layers} for this model, got {critic_layers}"
            )
        self.lm = lm
        self.n_trunk = n_layers - critic_layers
        self.branch = copy.deepcopy(lm.model.layers[self.n_trunk :])
        self.branch_norm = copy.deepcopy(lm.model.norm)
        self.head = nn.Linear(lm.config.hidden_size, 1, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.temperature = temperature
        self.value_grad_trunk = value_grad_trunk

    def actor_parameters(self) -> list[nn.Parameter]:
        return list(self.lm.parameters())

    def critic_parameters(self) -> list[nn.Parameter]:
        return [p for name, p in self.named_parameters() if not name.startswith("lm.")]

    def forward(self, ids: Tensor, response_mask: Tensor, entropy_grad: bool = False) -> Scores:
        """ids: (B, L), padded on the right; response_mask: (B, L), True on sampled tokens.

        entropy_grad: whether entropies carry a gradient (only an entropy bonus needs it)
        """
        hidden, rotary = trunk(self.lm, ids, self.n_trunk)  # (B, L, D)
        decoded = decode(self.lm.model.layers[self.n_trunk :], hidden, rotary)
        decisions = self.lm.model.norm(_decisions(decoded, response_mask))  # (R, D)
        tokens = ids[response_mask]
        logps, entropies = token_logps(self.lm, decisions, tokens, self.temperature, entropy_grad)
        shared = hidden if self.value_grad_trunk else hidden.detach()
        return Scores(logps, entropies, self._branch_values(shared, rotary, response_mask))

    def values(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """The critic alone, (R,): no gradient reaches what it shares with the actor."""
        with torch.no_grad():
            hidden, rotary = trunk(self.lm, ids, self.n_trunk)
        return self._branch_values(hidden, rotary, response_mask)

    def _branch_values(self, hidden: Tensor, rotary, response_mask: Tensor) -> Tensor:
        """hidden: (B, L, D) at the fork, which for k = 0 is the actor's last hidden state."""
        features = _decisions(decode(self.branch, hidden, rotary), response_mask)
        return self.head(self.branch_norm(features).float()).squeeze(-1)  # (R,)


class Reference(nn.Module):
    """The frozen initial policy: pi_0 of the KL penalty."""

    def __init__(self, lm, temperature: float):
        super().__init__()
        self.lm = copy.deepcopy(lm).requires_grad_(False).eval()
        self.temperature = temperature

    @torch.no_grad()
    def forward(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """Log-probs of the response tokens, (R,)."""
        return response_logps(self.lm, ids, response_mask, self.temperature)


def response_logps(lm, ids: Tensor, response_mask: Tensor, temperature: float) -> Tensor:
    """Log-probs of the response tokens under the plain model, (R,)."""
    hidden, _ = trunk(lm, ids, len(lm.model.layers))
    decisions = lm.model.norm(_decisions(hidden, response_mask))
    return token_logps(lm, decisions, ids[response_mask], temperature)[0]


def trunk(lm, ids: Tensor, n_layers: int):
    """Hidden states (B, L, D) after the first n_layers decoder layers, and the rotary tables.

    Rows are padded on the right and attention is causal, so no real token ever sees padding:
    there is no attention mask and position_ids are 0..L-1 in every row.
    """
    hidden = lm.model.embed_tokens(ids)
    positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
    rotary = lm.model.rotary_emb(hidden, positions)
    return decode(lm.model.layers[:n_layers], hidden, rotary), rotary


def decode(layers, hidden: Tensor, rotary) -> Tensor:
    for layer in layers:
        hidden = layer(hidden, attention_mask=None, position_embeddings=rotary)
    return hidden


def _decisions(hidden: Tensor, response_mask: Tensor) -> Tensor:
    """(B, L, D) -> (R, D): the hidden state before each response token, which predicts it."""
    return hidden[:, :-1][response_mask[:, 1:]]


def token_logps(lm, decisions: Tensor, tokens: Tensor, temperature: float, entropy_grad=False):
    """Log-probs and entropies (R,) of `tokens` given `decisions` (R, D), softmax in fp32.

    The (R, V) logits never exist at once: chunks of tokens, recomputed in the backward pass.
    """
    size = max(1, LOGITS_PER_CHUNK // lm.config.vocab_size)
    recompute = len(tokens) > size and torch.is_grad_enabled()
    chunks = []
    for h, t in zip(decisions.split(size), tokens.split(size), strict=True):
        arguments = (lm.lm_head, h, t, temperature, entropy_grad)
        if recompute:
            chunks.append(checkpoint(_chunk_logps, *arguments, use_reentrant=False))
        else:
            chunks.append(_chunk_logps(*arguments))
    logps, entropies = zip(*chunks, strict=True)
    return torch.cat(logps), torch.cat(entropies)


def _chunk_logps(lm_head, decisions: Tensor, tokens: Tensor, temperature: float, entropy_grad):
    logits = lm_head(decisions).float() / temperature  # (r, V)
    log_total = logits.logsumexp(-1)
    logps = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - log_total
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        # H = log sum exp(z) - sum p z
        p = (logits - log_total.unsqueeze(-1)).exp()
        entropies = log_total - torch.linalg.vecdot(p, logits)
    return logps, entropies


def check_decoder(lm) -> int:
    """The number of decoder layers, if `trunk` computes what the model itself computes.

    ValueError for architectures whose forward pass is more than embeddings, rotary positions and
    a chain of decoder layers with full causal attention.
    """
    known = "supported are Llama-like decoders with full attention (Llama, Qwen2, Qwen3, ...)"
    body = getattr(lm, "model", None)
    parts = all(hasattr(body, part) for part in ("embed_tokens", "layers", "rotary_emb", "norm"))
    if not parts or getattr(lm.config, "sliding_window", None):
        raise ValueError(f"cannot build a critic branch on {type(lm).__name__}: {known}")
    ids = torch.arange(8, device=lm.device).unsqueeze(0) % lm.config.vocab_size
    with torch.no_grad():
        hidden, _ = trunk(lm, ids, len(body.layers))
        ours, theirs = body.norm(hidden), body(ids, use_cache=False).last_hidden_state
    if not torch.allclose(ours, theirs, atol=1e-3, rtol=1e-2):
        raise ValueError(f"{type(lm).__name__} does more than its decoder layers: {known}")
    return len(body.layers)
