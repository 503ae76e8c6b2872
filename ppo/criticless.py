"""The update without a critic: the actor alone is trained."""

import torch
from torch import Tensor

from ppo.agent import Agent


class CriticlessAgent(Agent):
    """An `Agent` that has no values to fit. The metrics of the critic are None."""

    def _parameter_groups(self) -> list[dict]:
        return [{"params": self.actor_critic.actor_parameters(), "lr": self.settings.lr}]

    def _value_loss(self, batch, micro_batch, values: None) -> Tensor:
        return torch.zeros_like(micro_batch.temperature)

    def update(self, batch, plan: list[list[list[int]]]) -> dict[str, float | None]:
        figures = super().update(batch, plan)
        return figures | {"ppo/value_loss": None, "ppo/grad_norm_critic": None}
