"""A batch whose values are known when it is complete: no critic computes them."""

import torch
from torch import Tensor

from storage.criticless import CriticlessBatch


class ValuedBatch(CriticlessBatch):
    """The values come from continuations. costs: figures of what these took, for the logs"""

    def take_values(self, values: list[list[tuple[float, float]]], costs: dict) -> None:
        """Keep V of the state before and after each turn of each environment.

        All tokens of a turn get the turn's value, because the turn is the action.
        """
        self.costs, table = costs, torch.zeros(self.e_len, self.n_env, 2)
        for n, pairs in enumerate(values):
            table[: len(pairs), n] = torch.tensor(pairs)
        before, self.after = table.to(self.device).unbind(-1)
        self.values = torch.where(self.response_mask, before.unsqueeze(-1), 0.0)

    def next_values(self) -> Tensor:
        return self.after
