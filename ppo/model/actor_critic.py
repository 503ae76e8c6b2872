"""The actor-critic: one shared trunk, the actor's layers on top of it, and a critic branch.

    ids -> embeddings -> layers below --> top k layers, norm --> lm_head --> log-probs   (actor)
                                     \\--> a copy of them ------> linear head --> values  (critic)

The copy starts as the actor's layers and the fp32 head at zero output; k = 0 is the plain head on
the actor's last hidden state. Everything per token is computed at response positions only and
returned flat: (R,) in row-major order, R = response_mask.sum(). The pieces are in `decoder`.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ppo.model.decoder import (
    check_decoder,
    decisions_of,
    decode,
    embed,
    precision,
    response_logps,
    token_logps,
)
from ppo.model.lora import adapters_off, add_adapters, export_adapter, merged_weights
from ppo.model.packing import use_packing


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
    packed: train on turns without padding (`ppo.model.packing`)
    lora_rank: of adapters, which then are all that is trained of the actor (`lora`); 0: none
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
            config = json.loads((folder / "config.json").read_text())
            config["dtype"] = str(self.dtype).removeprefix("torch.")  # not that of training
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    def critic_parameters(self) -> list[nn.Parameter]:
        return [p for name, p in self.named_parameters() if not name.startswith("lm.")]

    def forward(
        self,
        ids: Tensor,
        response_mask: Tensor,
        entropy_grad: bool = False,
        critic_only: bool = False,
        base_only: bool = False,
    ) -> Scores | Tensor:
        """ids: (B, L), padded on the right; response_mask: (B, L), True on sampled tokens.

        entropy_grad: whether entropies carry a gradient (only an entropy bonus needs it)
        critic_only: return values (R,) alone; no gradient reaches what is shared with the actor
        base_only: return the log-probs (R,) of the actor without its adapters
        """
        if base_only:
            with adapters_off(self.lm):
                return response_logps(self.lm, ids, response_mask, self.temperature, self.dtype)
        layers = self.lm.model.layers
        with precision(ids.device, self.dtype):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not critic_only):
                hidden, how, response_mask, tokens = embed(self.lm, ids, response_mask, self.dtype)
                hidden = decode(layers[: self.n_trunk], hidden, how, self.recompute)  # (B, L, D)
            if critic_only:
                return self._branch_values(hidden, how, response_mask)
            decoded = decode(layers[self.n_trunk :], hidden, how, self.recompute)
            decisions = self.lm.model.norm(decisions_of(decoded, response_mask))  # (R, D)
            scores = token_logps(self.lm, decisions, tokens, self.temperature, entropy_grad)
            shared = hidden if self.value_grad_trunk else hidden.detach()
            return Scores(*scores, self._branch_values(shared, how, response_mask))

    def values(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """The critic alone, (R,)."""
        return self(ids, response_mask, critic_only=True)

    def _branch_values(self, hidden: Tensor, how: dict, response_mask: Tensor) -> Tensor:
        """hidden: (B, L, D) at the fork, which for k = 0 is the actor's last hidden state."""
        decoded = decode(self.branch, hidden, how, self.recompute)
        features = self.branch_norm(decisions_of(decoded, response_mask))
        with precision(hidden.device, torch.float32):
            return self.head(features.float()).squeeze(-1)  # (R,)


class Reference(nn.Module):
    """The frozen initial policy: pi_0 of the KL penalty.

    dtype: of its copy of the weights
    home: the device that it is on but for `awake`, if that is another one than it computes on
    """

    def __init__(
        self,
        lm,
        temperature: float,
        dtype: torch.dtype = torch.float32,
        home: str | None = None,
    ):
        super().__init__()
        self.temperature, self.dtype, self.home = temperature, dtype, home
        self.device = lm.device
        # Parameter by parameter in its dtype and place; not .to(dtype): rotary tables stay fp32.
        copies = {
            id(p): nn.Parameter(p.detach().to(home or p.device, dtype, copy=True), False)
            for p in lm.parameters()
        }
        self.lm = copy.deepcopy(lm, copies).eval()
        self.to(home or self.device)

    @torch.no_grad()
    def forward(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """Log-probs of the response tokens, (R,)."""
        return response_logps(self.lm, ids, response_mask, self.temperature, self.dtype)

    @contextmanager
    def awake(self):
        """`with reference.awake():` it is where it computes."""
        if self.home:
            self.to(self.device)
        yield
        if self.home:
            self.to(self.home)


class AdaptersOff:
    """The reference where there are adapters: the model without them. No copy, and no module, so
    that sharded parameters are gathered by the actor-critic that they belong to."""

    awake = staticmethod(nullcontext)

    def __init__(self, actor_critic: ActorCritic):
        self.actor_critic = actor_critic

    @torch.no_grad()
    def __call__(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        return self.actor_critic(ids, response_mask, base_only=True)
