"""The reference: the frozen initial policy, pi_0 of the KL penalty.

`Reference` is a copy of the model. `AdaptersOff` needs none: LoRA leaves the base as it was.
"""

import copy
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from ppo.model.decoder import response_logps


class Reference(nn.Module):
    """A frozen copy of the model.

    dtype: dtype of the copy and of its matrix products
    home: device where it rests between scorings; None: it stays on the device of the model
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
        # Each parameter is cast on its own, straight to where it rests. `.to(dtype)` would cast the
        # buffers as well, and the rotary tables must stay fp32.
        copies = {
            id(p): nn.Parameter(p.detach().to(home or p.device, dtype, copy=True), False)
            for p in lm.parameters()
        }
        self.lm = copy.deepcopy(lm, copies).eval()
        self.to(home or self.device)

    @torch.no_grad()
    def forward(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """Return the log-probs of the response tokens, (R,). Shapes as in `ActorCritic.forward`."""
        return response_logps(self.lm, ids, response_mask, self.temperature, self.dtype)

    @contextmanager
    def awake(self):
        """`with reference.awake():` holds it on the device where it computes."""
        if self.home:
            self.to(self.device)
        yield
        if self.home:
            self.to(self.home)


class AdaptersOff:
    """The reference of a run with adapters: the actor-critic's own model, without them."""

    # It is not a module, and it calls the actor-critic as one, because parameters that are sharded
    # by ZeRO are gathered by hooks of the module that they belong to.
    awake = staticmethod(nullcontext)

    def __init__(self, actor_critic):
        self.actor_critic = actor_critic

    @torch.no_grad()
    def __call__(self, ids: Tensor, response_mask: Tensor) -> Tensor:
        """Return the log-probs of the response tokens, (R,)."""
        return self.actor_critic(ids, response_mask, base_only=True)
