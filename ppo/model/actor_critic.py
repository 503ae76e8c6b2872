"""The actor-critic: one shared trunk, the actor's layers on top of it, and a critic branch.

    ids -> embeddings -> trunk layers --> top k layers, norm --> lm_head --> log-probs   (actor)
                                     \\--> a copy of them ------> linear head --> values  (critic)

One forward pass gives both. With k = 0 the critic is a plain head on the actor's last hidden state.
The reference policy of the KL penalty is a frozen copy of the actor.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ppo.model.decoder import (
    PLAIN,
    Compute,
    decide,
    decode,
    embed,
    precision,
    response_logps,
    token_logps,
)
from storage.minibatch import MicroBatch


class Scores(NamedTuple):
    """The result of a forward pass for the R response tokens, in row-major order."""

    logps: Tensor  # (R,)
    entropies: Tensor  # (R,); (0,) where gradients are off
    values: Tensor | None  # (R,): V of the state before the token; None if it was not computed


class ActorCritic(nn.Module):
    """A Hugging Face causal LM with a critic branch.

    lm: a decoder that `ppo.model.acceptance` has tested
    critic_layers: k, the layers that the critic copies, at most as many as the model has
    compute: how the layers compute
    """

    def __init__(self, lm, critic_layers: int, compute: Compute = PLAIN):
        super().__init__()
        self.lm, self.compute, self.dtype = lm, compute, compute.dtype
        self.n_trunk = len(lm.model.layers) - critic_layers
        # `with whole(parameters):` makes sharded parameters whole (`ppo.distributed`).
        self.whole = nullcontext
        self._add_critic()

    def _add_critic(self) -> None:
        # The actor's last hidden state says little about returns: a plain head on it explains next
        # to none of them, and a new random layer no more. A copy of the trained layers does better.
        self.branch = copy.deepcopy(self.lm.model.layers[self.n_trunk :])
        self.branch_norm = copy.deepcopy(self.lm.model.norm)
        self.head = nn.Linear(self.lm.config.hidden_size, 1, dtype=torch.float32)
        # At zero an untrained critic says V = 0. Random weights would make noisy advantages.
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self,
        batch: MicroBatch,
        entropy_grad: bool = False,
        part: Literal["both", "actor", "critic"] = "both",
    ) -> Scores | Tensor:
        """Score the R response tokens of a batch.

        part: what is computed. "both": all Scores; "actor": without values; "critic": the values
            (R,) alone, which train only what the critic does not share with the actor
        entropy_grad: whether entropies carry a gradient, as an entropy bonus needs
        """
        # All parts are computed in here, because ZeRO gathers sharded parameters in hooks that run
        # when the module is called, not when one of its methods is.
        with precision(batch.ids.device, self.dtype):
            if part == "critic":
                # In the warm-up .grad stays None here: AdamW leaves the actor as it is, to the bit.
                with torch.no_grad():
                    start = self._trunk(batch)
                return self._values(*start)
            start = self._trunk(batch)
            logps, entropies = self._logps(batch, *start, entropy_grad)
            return Scores(logps, entropies, None if part == "actor" else self._values(*start))

    def _trunk(self, batch: MicroBatch) -> tuple[Tensor, Tensor, dict]:
        """Return the hidden state (B, L, D) after the trunk, response_mask and layer options."""
        hidden, mask, options = embed(self.lm, batch.ids, batch.response_mask, self.compute)
        layers = self.lm.model.layers[: self.n_trunk]
        return decode(layers, hidden, options, self.compute), mask, options

    def _logps(self, batch, hidden: Tensor, mask: Tensor, options: dict, entropy_grad: bool):
        """Return log-probs and entropies, both (R,)."""
        layers = self.lm.model.layers[self.n_trunk :]
        decisions = decide(layers, hidden, mask, options, self.compute)  # (R, D)
        decisions = self.lm.model.norm(decisions)
        return token_logps(self.lm, decisions, batch.tokens, batch.temperature, entropy_grad)

    def _values(self, hidden: Tensor, mask: Tensor, options: dict) -> Tensor:
        """Return the values, (R,)."""
        shared = hidden.detach()  # the value loss must not move layers that the policy acts with
        decisions = decide(self.branch, shared, mask, options, self.compute)  # (R, D)
        features = self.branch_norm(decisions).float()
        # Without autocast, for bfloat16 would round values just above 1 to steps of 1/128.
        with precision(hidden.device, torch.float32):
            return self.head(features).squeeze(-1)

    def values(self, batch: MicroBatch) -> Tensor:
        """Return the critic's values alone, (R,)."""
        return self(batch, part="critic")

    def actor_parameters(self) -> list[nn.Parameter]:
        return [p for p in self.lm.parameters() if p.requires_grad]  # adapters freeze the rest

    def critic_parameters(self) -> list[nn.Parameter]:
        own = [p for name, p in self.named_parameters() if not name.startswith("lm.")]
        return [p for p in own if p.requires_grad]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the actor's weights by name. All ranks must read to the end."""
        for name, p in self.lm.named_parameters():  # a tied lm_head comes once
            with self.whole([p]):
                yield name, p.detach()

    def export(self, folder: Path, keep: bool) -> None:
        """Write the actor as a Hugging Face model.

        keep: whether this rank writes. All ranks must call this: gathering is collective.
        """
        weights = {name: w.to("cpu", self.dtype) for name, w in self.weights() if keep}
        if keep:
            self.lm.save_pretrained(folder, state_dict=weights)
            # Else the file would name the dtype of training, fp32, for weights in self.dtype.
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            config["dtype"] = str(self.dtype).removeprefix("torch.")
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


class Reference(nn.Module):
    """The frozen initial policy, pi_0 of the KL penalty: a copy, its matrices in compute.dtype."""

    awake = staticmethod(nullcontext)  # `with reference.awake():` it can compute
    device = None  # of the copy; None: the model's

    def __init__(self, lm, compute: Compute = PLAIN):
        super().__init__()
        self.compute = compute
        copies = {id(p): self._copied(p) for p in lm.parameters()}
        self.lm = copy.deepcopy(lm, copies).eval()

    def _copied(self, p: nn.Parameter) -> nn.Parameter:
        # Autocast casts the actor's matrices alone. With norms or rotary tables in bf16 the copy
        # would compute something else, and the KL would not be 0 before the first update.
        dtype = self.compute.dtype if p.dim() > 1 else p.dtype
        return nn.Parameter(p.detach().to(self.device, dtype, copy=True), requires_grad=False)

    @torch.no_grad()
    def forward(self, batch: MicroBatch) -> Tensor:
        """Return the log-probs of the response tokens, (R,)."""
        return response_logps(self.lm, batch, self.compute)
