"""Imitation: AdamW maximises the likelihood of demonstrated responses.

The model, its micro-batches and its optimizer step are those of the PPO update, so padding,
packing, LoRA and ranks work in the same way.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from ppo.optimizer import Stepper
from storage.minibatch import Sample, micro_batches

MAX_GRAD_NORM = 1.0
WARM_UP = 30  # steps, or a tenth of all if these are fewer, until the learning rate has its peak


class Imitation:
    """Makes steps on random turns. `step` counts them.

    actor: an `ActorOnly`; make_stepper: `Stepper`, or what `ppo.distributed.make_stepper` returns
    steps: the length of the schedule; batch: turns of a step; lr: its peak, a cosine ends it at 0
    """

    def __init__(
        self, actor, samples: list[Sample], steps: int, batch: int, lr: float, seed: int,
        make_stepper: Callable = Stepper,
    ):  # fmt: skip
        self.samples, self.steps, self.seed, self.step = samples, steps, seed, 0
        self.batch, self.lr = min(batch, len(samples)), lr
        params = [{"params": actor.actor_parameters(), "lr": 0.0}]
        optimizer = torch.optim.AdamW(params, betas=(0.9, 0.99), weight_decay=0.01)
        self.stepper = make_stepper(actor, optimizer, MAX_GRAD_NORM)
        self.device = next(actor.parameters()).device

    def take_step(self, token_budget: int) -> float:
        """Make a step; return the mean loss per token, the negative log-likelihood in nats."""
        self._schedule_lr()
        # The turns depend on the step alone, so a run that goes on draws what it would have drawn.
        rng = np.random.default_rng((self.seed, self.step))
        rows = rng.choice(len(self.samples), self.batch, replace=False).tolist()
        n_tokens = sum(len(self.samples[row].response) for row in rows)
        total = torch.zeros(1, device=self.device)
        for micro in self._micro_batches(self.samples, rows, token_budget):
            loss = -self.stepper.model(micro).logps.sum() / n_tokens
            self.stepper.backward(loss)  # each rank adds its share of one mean
            total += loss.detach()
        loss = self.stepper.ranks.sum(total).item()
        self.stepper.step(loss)
        self.step += 1
        return loss

    def measure(self, samples: list[Sample], token_budget: int) -> tuple[float, float]:
        """Return the mean loss and the mean entropy per token of some turns, in nats."""
        sums = torch.zeros(2, device=self.device)
        for micro in self._micro_batches(samples, range(len(samples)), token_budget):
            scores = self.stepper.model(micro)  # with gradients, else there are no entropies
            sums += torch.stack([-scores.logps.detach().sum(), scores.entropies.detach().sum()])
        loss, entropy = self.stepper.ranks.sum(sums) / sum(len(s.response) for s in samples)
        return loss.item(), entropy.item()

    def _micro_batches(self, samples: list[Sample], rows, token_budget: int):
        alone, ranks = [[row] for row in rows], self.stepper.ranks
        return micro_batches(samples, alone, token_budget, self.device, ranks)

    def _schedule_lr(self) -> None:
        rising = (self.step + 1) / min(WARM_UP, max(1, self.steps // 10))
        falling = (1 + math.cos(math.pi * self.step / self.steps)) / 2
        self.stepper.optimizer.param_groups[0]["lr"] = self.lr * min(rising, 1.0) * falling

    def state_dict(self) -> dict:
        return {"step": self.step, "stepper": self.stepper.state_dict()}

    def load_state_dict(self, state: dict, folder) -> None:
        """folder: where the stepper may have written its part"""
        self.stepper.load_state_dict(state["stepper"], folder)
        self.step = state["step"]
