"""From losses to weights: gradients summed over ranks, clipped by their norm, AdamW.

`Stepper` is one process, or many of which each holds the whole model (ZeRO stage 0). The stages
that shard it are in `ppo.distributed`, behind the same methods.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

from storage.ranks import Ranks


class Stepper:
    """optimizer: AdamW of the actor-critic, a group of parameters for the actor, one for the critic

    max_grad_norm: of both together
    """

    def __init__(self, actor_critic, optimizer, max_grad_norm: float, ranks: Ranks):
        self.actor_critic, self.optimizer = actor_critic, optimizer
        self.model = actor_critic  # what to call where gradients are wanted
        self.max_grad_norm, self.ranks = max_grad_norm, ranks

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a micro-batch. loss: this rank's part of a sum over all ranks."""
        loss.backward()

    def step(self, loss: float) -> tuple[float, bool]:
        """Clip and step. loss: of the whole minibatch. Returns the gradient's norm before clipping
        and whether a step was made: it is not if the loss or the norm is not finite."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for p in parameters:
            if p.grad is not None:  # that of a frozen actor is, on all ranks
                self.ranks.sum(p.grad)
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm).item()
        fine = math.isfinite(norm) and math.isfinite(loss)
        if fine:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm, fine

    def reset_actor(self) -> None:
        """After the warm-up: the actor's next step is AdamW's first. Without gradients AdamW left
        it as it was, parameters and state."""

    def state_dict(self) -> dict:
        """The same for any number of ranks. What is frozen is not part of it."""
        trained = {
            n: p.detach() for n, p in self.actor_critic.named_parameters() if p.requires_grad
        }
        return {"actor_critic": trained, "optimizer": self.optimizer.state_dict()}

    def save(self, folder: Path) -> None:
        """What else belongs into a checkpoint; called on all ranks."""

    def load_state_dict(self, state: dict, folder: Path) -> None:
        """folder: of the checkpoint. ValueError: it is not of this model."""
        if "ranks" in state:
            raise ValueError("it is of {ranks} ranks, --zero-stage {zero_stage}".format(**state))
        missing, unknown = self.actor_critic.load_state_dict(state["actor_critic"], strict=False)
        trained = self.state_dict()["actor_critic"]
        wrong = unknown + [name for name in missing if name in trained]
        if wrong:
            raise ValueError(f"its parameters are others: {', '.join(wrong)}")
        self.optimizer.load_state_dict(state["optimizer"])
