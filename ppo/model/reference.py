"""Other references than a copy on the device: one that rests in host memory, and none at all."""

from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from ppo.model.actor_critic import Reference
from ppo.model.decoder import PLAIN, Compute
from storage.minibatch import MicroBatch


class HostReference(Reference):
    """A reference that rests in host memory and moves to the model's device to compute."""

    device = "cpu"  # at no time is there a second copy on the GPU

    def __init__(self, lm, compute: Compute = PLAIN):
        super().__init__(lm, compute)
        self.computes_on = lm.device
        self.to("cpu")  # the buffers

    @contextmanager
    def awake(self):
        self.to(self.computes_on)
        yield
        self.to("cpu")


class NoReference:
    """In place of a reference where no KL is asked for: every log-prob is unknown, nan."""

    awake = staticmethod(nullcontext)

    def __call__(self, batch: MicroBatch) -> Tensor:
        return torch.full(batch.tokens.shape, float("nan"), device=batch.ids.device)
