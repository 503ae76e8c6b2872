"""The reference: the frozen initial policy, pi_0 of the KL penalty."""

import copy
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from ppo.model.decoder import response_logps
from storage.minibatch import MicroBatch


class Reference(nn.Module):
    """A frozen copy of the model, its matrices in `dtype`. It rests on `home`, if given."""

    def __init__(self, lm, dtype=torch.float32, home: str | None = None):
        super().__init__()
        self.dtype, self.home, self.device = dtype, home, lm.device
        # Autocast casts the actor's matrices alone. With norms or rotary tables in bf16 the copy
        # would compute something else, and the KL would not be 0 before the first update.
        copies = {}
        for p in lm.parameters():
            kept = p.detach().to(home or p.device, dtype if p.dim() > 1 else p.dtype, copy=True)
            copies[id(p)] = nn.Parameter(kept, requires_grad=False)
        self.lm = copy.deepcopy(lm, copies).eval()
        self.to(home or self.device)

    @torch.no_grad()
    def forward(self, batch: MicroBatch) -> Tensor:
        """Return the log-probs of the response tokens, (R,)."""
        return response_logps(self.lm, batch, self.dtype)

    @contextmanager
    def awake(self):
        """`with reference.awake():` holds it on the device where it computes."""
        if self.home:
            self.to(self.device)
        yield
        if self.home:
            self.to(self.home)


class AdaptersOff:
    """The reference of a LoRA run, without a copy: the actor-critic's model with adapters off."""

    awake = staticmethod(nullcontext)

    def __init__(self, actor_critic):
        self.actor_critic = actor_critic

    @torch.no_grad()
    def __call__(self, batch: MicroBatch) -> Tensor:
        """Return the log-probs of the response tokens, (R,)."""
        # Only a call of the whole module runs the hooks by which ZeRO gathers parameters.
        return self.actor_critic(batch, base_only=True)


class NoReference:
    """In place of a reference where no KL is asked for: every log-prob is unknown, nan."""

    awake = staticmethod(nullcontext)

    def __call__(self, batch: MicroBatch) -> Tensor:
        return torch.full(batch.tokens.shape, float("nan"), device=batch.ids.device)
