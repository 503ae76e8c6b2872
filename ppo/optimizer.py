"""From losses to weights: gradients are summed over ranks and clipped by one norm; AdamW steps.

`Stepper` is for ranks that each hold the whole model; `ppo.distributed` has one for shards of it.
"""

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from common.plugins import UserError
from common.ranks import ALONE, Ranks


class Stepper:
    """Makes the steps of an AdamW, whose groups are the actor and, if there is one, the critic."""

    def __init__(self, actor_critic, optimizer, max_grad_norm: float, ranks: Ranks = ALONE):
        self.actor_critic, self.optimizer = actor_critic, optimizer
        self.model = actor_critic  # what to call where gradients are wanted
        self.max_grad_norm, self.ranks = max_grad_norm, ranks

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a micro-batch. loss: this rank's part of a sum over all ranks."""
        loss.backward()

    def step(self, loss: float) -> tuple[list[float], bool]:
        """Clip the gradient and step, unless its norm or the minibatch's loss is not finite.
        Returns the norm of each group before clipping and whether a step was made."""
        groups = [group["params"] for group in self.optimizer.param_groups]
        for p in sum(groups, []):
            if p.grad is not None:  # a frozen actor has none on any rank, so all ranks sum the same
                self.ranks.sum(p.grad)
        norms = [norm_of_gradients(params) for params in groups]  # of sums: all ranks clip alike
        # One norm of both: where the critic is far off, the actor is slowed down as well.
        norm = torch.stack(norms).norm()
        clip_grads_with_norm_(sum(groups, []), self.max_grad_norm, norm)
        # A single nan in a gradient would make all weights nan, for good.
        finite = math.isfinite(norm) and math.isfinite(loss)
        if finite:  # on all ranks or on none, as all know the same sums
            self.optimizer.step()
        # None, not 0: AdamW skips parameters without a gradient, but steps those whose gradient is
        # zero, by their momentum. The warm-up relies on it to leave the actor as it is.
        self.optimizer.zero_grad(set_to_none=True)
        return [norm.item() for norm in norms], finite

    def reset_actor(self) -> None:
        """Let AdamW count the actor's steps from 0 again, after the warm-up."""
        for state in self.optimizer.state.values():
            # DeepSpeed takes missing gradients for zeros, by which it has stepped the actor.
            if not state["exp_avg"].any():
                state["step"].zero_()

    def state_dict(self) -> dict:
        """Return trained parameters and the optimizer's state, which fit any number of ranks."""
        named = self.actor_critic.named_parameters()
        trained = {name: p.detach() for name, p in named if p.requires_grad}  # adapters, with LoRA
        return {"actor_critic": trained, "optimizer": self.optimizer.state_dict()}

    def save(self, folder: Path) -> None:
        """Write what a checkpoint holds besides `state_dict`: nothing here. All ranks call this."""

    def load_state_dict(self, state: dict, folder: Path) -> None:
        """folder: the checkpoint's. ValueError: the state does not fit this model or these ranks"""
        if "ranks" in state:
            raise UserError("it is of {ranks} ranks, --zero-stage {zero_stage}".format(**state))
        missing, unknown = self.actor_critic.load_state_dict(state["actor_critic"], strict=False)
        trained = self.state_dict()["actor_critic"]
        # Frozen parameters are missing on purpose: they come from --model.
        wrong = unknown + [name for name in missing if name in trained]
        if wrong:
            raise UserError(f"its parameters are others: {', '.join(wrong)}")
        self.optimizer.load_state_dict(state["optimizer"])


def norm_of_gradients(params: list[Tensor]) -> Tensor:
    """Return the norm of their gradients, on their device. (Of none, torch's is a 0 on the CPU.)"""
    return get_total_norm([p.grad for p in params if p.grad is not None]).to(params[0].device)
