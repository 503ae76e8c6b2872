"""The actor-critic: one shared trunk, the actor's layers on top of it, and a critic branch.

    ids -> embeddings -> layers below --> top k layers, norm --> lm_head --> log-probs   (actor)
                                     \\--> a copy of them ------> linear head --> values  (critic)

The copy starts as the actor's layers and the fp32 head at zero output; k = 0 is the plain head on
the actor's last hidden state. Everything per token is computed at response positions only and
returned flat: (R,) in row-major order, R = response_mask.sum(). The shift by one between a token
and the hidden state that predicts it happens in `_decisions`, and nowhere else.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from ppo.lora import adapters_off, add_adapters, export_adapter, merged_weights
from ppo.packing import pack, use_packing

LOGITS_PER_CHUNK = 2**25  # entries of the (tokens, V) block that exists at a time


class Scores(NamedTuple):
    """What one forward pass says of each response token, all (R,)."""

    logps: Tensor
    entropies: Tensor
    values: Tensor


class ActorCritic(nn.Module):
    """A Hugging Face causal LM with a critic branch of `critic_layers` copied decoder layers.

    temperature: the sampling temperature; log-probs are those of the distribution sampled from
    value_grad_trunk: whether the value loss may move the layers shared with the actor
    dtype: of activations and matrix products; parameters and softmax are fp32
    recompute: activations of a layer in the backward pass, instead of keeping them
    packed: train on turns without padding (`ppo.packing`)
    lora_rank: of adapters, which then are all that is trained of the actor (`ppo.lora`); 0: none
    """

    def __init__(
        self,
        lm,
        critic_layers: int,
        temperature: float,
        value_grad_trunk: bool = False,
        dtype: torch.dtype = torch.float32,
        recompute: bool = False,
        packed: bool = False,
        lora_rank: int = 0,
    ):
        super().__init__()
        n_layers = check_decoder(lm)
        if packed:
            use_packing(lm)
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
        if lora_rank:
            add_adapters(lm, lora_rank, dtype)
        self.temperature = temperature
        self.value_grad_trunk = value_grad_trunk
        self.dtype, self.recompute = dtype, recompute
        self.whole = nullcontext  # (parameters): where they are sharded, makes them whole

    def actor_parameters(self) -> list[nn.Parameter]:
        return [p for p in self.lm.parameters() if p.requires_grad]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The actor's parameters under their Hugging Face names, one whole at a time, adapters
        merged. Called on all ranks, read to the end."""
        return merged_weights(self.lm, self.whole)

    def export(self, folder: Path, keep: bool, adapter: bool = False) -> None:
        """Write the actor as a Hugging Face model, or its adapter alone. Called on all ranks;
        keep: on this one."""
        if adapter:
            return export_adapter(self.lm, folder, self.whole, keep)
        whole = {name: w.to("cpu", self.dtype) for name, w in self.weights() if keep}
        if keep:
            self.lm.save_pretrained(folder, state_dict=whole)

    def critic_parameters(self) -> list[nn.Parameter]:
        return [p for name, p in self.named_parameters() if not name.startswith("lm.")]

    def forward(
        self,
        ids: Tensor,
        response_mask: Tensor,
        entropy_grad: bool = False,
        critic_only: bool = False,
    ) -> Scores | Tensor:
        """ids: (B, L), padded on the right; response_mask: (B, L), True on sampled tokens.

        entropy_grad: whether entropies carry a gradient (only an entropy bonus needs it)
        critic_only: return values (R,) alone; no gradient reaches what is shared with the actor
        """
        layers = self.lm.model.layers
        with precision(ids.device, self.dtype):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not critic_only):
                hidden, how, response_mask, tokens = embed(self.lm, ids, response_mask, self.dtype)
                hidden = decode(layers[: self.n_trunk], hidden, how, self.recompute)  # (B, L, D)
            if critic_only:
                return self._branch_values(hidden, how, response_mask)
            decoded = decode(layers[self.n_trunk :], hidden, how, self.recompute)
            decisions = self.lm.model.norm(_decisions(decoded, response_mask))  # (R, D)
            scores = token_logps(self.lm, decisions, tokens, self.temperature, entropy_grad)
            shared = hidden if self.value_grad_trunk else hidden.detach()
            return Scores(*scores, self._branch_values(shared, how, response_mask))

    def values(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """The critic alone, (R,)."""
        return self(ids, response_mask, critic_only=True)

    def _branch_values(self, hidden: Tensor, how: dict, response_mask: Tensor) -> Tensor:
        """hidden: (B, L, D) at the fork, which for k = 0 is the actor's last hidden state."""
        decoded = decode(self.branch, hidden, how, self.recompute)
        features = self.branch_norm(_decisions(decoded, response_mask))
        with precision(hidden.device, torch.float32):
            return self.head(features.float()).squeeze(-1)  # (R,)


class Reference(nn.Module):
    """The frozen initial policy: pi_0 of the KL penalty.

    dtype: of its copy of the weights; adapted: no copy, the model with its adapters off
    home: the device that it is on but for `awake`, if that is another one than it computes on
    """

    def __init__(
        self,
        lm,
        temperature: float,
        dtype: torch.dtype = torch.float32,
        adapted: bool = False,
        home: str | None = None,
    ):
        super().__init__()
        self.temperature, self.dtype, self.adapted, self.home = temperature, dtype, adapted, home
        self.device = lm.device
        if adapted:
            self.lm = lm
            return
        self.lm = copy.deepcopy(lm).requires_grad_(False).eval()
        for p in self.lm.parameters():  # not .to(dtype): rotary tables stay fp32
            p.data = p.data.to(dtype)
        self.to(home or self.device)

    @torch.no_grad()
    def forward(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """Log-probs of the response tokens, (R,)."""
        with adapters_off(self.lm) if self.adapted else nullcontext():
            return response_logps(self.lm, ids, response_mask, self.temperature, self.dtype)

    @contextmanager
    def awake(self):
        """`with reference.awake():` it is where it computes."""
        if self.home:
            self.to(self.device)
        yield
        if self.home:
            self.to(self.home)


def response_logps(lm, ids, response_mask, temperature: float, dtype=torch.float32) -> Tensor:
    """Log-probs of the response tokens under the plain model, (R,)."""
    with precision(ids.device, dtype):
        hidden, how, response_mask, tokens = embed(lm, ids, response_mask, dtype)
        decisions = lm.model.norm(_decisions(decode(lm.model.layers, hidden, how), response_mask))
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


def _decisions(hidden: Tensor, response_mask: Tensor) -> Tensor:
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
