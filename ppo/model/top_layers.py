"""Training the top layers alone: what lies below is frozen, and computed once an update.

    ids -> embeddings -> frozen layers ==> top K layers, norm --> lm_head (frozen) --> log-probs
                                      \\==> those as they were -->      "           (reference)

The hidden states at ==> are the same for the actor before and after a step, for the reference and
for the critic. Scoring keeps them in the host's memory, up to a quarter of what is free, and the
first epoch takes them out: its micro-batches are those of scoring.
"""

import copy
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from common.host_memory import free_bytes
from common.plugins import UserError
from common.processors import ranks_here
from ppo.model.actor import ActorOnly
from ppo.model.actor_critic import ActorCritic
from ppo.model.decoder import decide, decode, embed, precision, token_logps
from ppo.model.known_states import KnownStates
from storage.minibatch import MicroBatch


def room_of_states() -> int:
    """Return how many bytes of the host's memory the kept states of this rank may take."""
    return free_bytes() // 4 // ranks_here()


class TopLayers:
    """Mixed into an actor-critic: of the actor, only the top K layers and the norm are trained.

    UserError: the model has fewer layers
    """

    def __init__(self, k: int, lm, *args, **options):
        super().__init__(lm, *args, **options)
        below = len(lm.model.layers) - k
        if below < 0:
            raise UserError(f"--train top:{k} is above the {below + k} layers of this model")
        lm.requires_grad_(False)
        for part in (*lm.model.layers[below:], lm.model.norm):
            part.requires_grad_(True)
        # A critic that copies more than K layers needs the states below them.
        self.n_frozen = min(below, self.n_trunk)
        self.states = KnownStates(room_of_states())
        self.scoring = False  # whether the forward pass that runs is one of scoring
        self.updated = False  # whether one with gradients came after what is known

    def forward(self, batch: MicroBatch, entropy_grad: bool = False, part="both"):
        # The critic's warm-up draws micro-batches that do not come again.
        self.scoring = part != "critic" and not torch.is_grad_enabled()
        self.updated |= torch.is_grad_enabled()
        return super().forward(batch, entropy_grad, part)

    def _trunk(self, batch: MicroBatch) -> tuple[Tensor, Tensor, dict]:
        hidden, mask, options = self.frozen(batch, keep=self.scoring)
        layers = self.lm.model.layers[self.n_frozen : self.n_trunk]
        return decode(layers, hidden, options, self.compute), mask, options

    @torch.no_grad()
    def frozen(self, batch: MicroBatch, keep: bool) -> tuple[Tensor, Tensor, dict]:
        """Return the hidden state (B, L, D) above the frozen layers, response_mask and options."""
        hidden, mask, options = embed(self.lm, batch.ids, batch.response_mask, self.compute)
        if (known := self.states.find(batch)) is not None:
            return known, mask, options
        hidden = decode(self.lm.model.layers[: self.n_frozen], hidden, options, self.compute)
        if keep:
            if self.updated:  # what was known is over: this is a new batch
                self.states.clear()
                self.updated = False
            self.states.keep(batch, hidden)
        return hidden, mask, options


class TopLayersActorCritic(TopLayers, ActorCritic):
    """An actor-critic whose actor is trained in its top layers."""


class TopLayersActor(TopLayers, ActorOnly):
    """An actor without a critic that is trained in its top layers."""


class TopLayersReference(nn.Module):
    """The reference of such a run: a copy of the layers above the frozen ones."""

    awake = staticmethod(nullcontext)

    def __init__(self, actor_critic: TopLayers):
        super().__init__()
        body = actor_critic.lm.model
        self.layers = copy.deepcopy(body.layers[actor_critic.n_frozen :]).requires_grad_(False)
        self.norm = copy.deepcopy(body.norm).requires_grad_(False)
        self.below = [actor_critic]  # in a list, so that it is no part of this module

    @torch.no_grad()
    def forward(self, batch: MicroBatch) -> Tensor:
        """Return the log-probs of the response tokens, (R,)."""
        actor_critic = self.below[0]
        with precision(batch.ids.device, actor_critic.dtype):
            hidden, mask, options = actor_critic.frozen(batch, keep=True)
            decisions = self.norm(decide(self.layers, hidden, mask, options, actor_critic.compute))
            return token_logps(actor_critic.lm, decisions, batch.tokens, batch.temperature)[0]
