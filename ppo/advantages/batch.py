"""What an advantage estimator sees: the turns of a batch, as tensors.

Axes are (E, N, T): turns, environments, response tokens. With fixed-turn batches every environment
has E turns. Of whole episodes E is the most turns that one has; the others lack their last ones.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Turns of each of N environments, at most E of them, at most T tokens a turn.

    rewards: (E, N, T); the environment's reward is on the last token, and if the KL is part of the
        reward, each token has its penalty
    values: (E, N, T), where values[t, n, k] is V of the state before token k of turn t; None
        without a critic
    response_mask: (E, N, T), True where a token was sampled; a missing turn has none
    next_values: (E, N), V of the state after turn t; 0 where the episode terminated; None without a
        critic
    episode_ends: (E, N), True where turn t was the last of its episode, or is missing
    groups: (E, N), whole numbers: episodes of one number began from one seed. An episode that a
        fault of its environment cut short has a number of its own
    anchors: (E, N), whole numbers: turns of one number were shown the same observation
    gamma_step, lam_step: discount and GAE lambda from turn to turn
    gamma_token, lam_token: discount and GAE lambda from token to token inside a turn
    """

    rewards: Tensor
    values: Tensor | None
    response_mask: Tensor
    next_values: Tensor | None
    episode_ends: Tensor
    groups: Tensor
    anchors: Tensor
    gamma_step: float
    lam_step: float
    gamma_token: float
    lam_token: float

    @property
    def turn_mask(self) -> Tensor:
        """(E, N), False where a turn is missing."""
        return self.response_mask.any(-1)

    @property
    def turn_rewards(self) -> Tensor:
        """(E, N), the sum of the rewards of a turn's tokens."""
        return torch.where(self.response_mask, self.rewards, 0.0).sum(-1)

    def spread(self, numbers: Tensor) -> Tensor:
        """Give every response token the number of its turn: (E, N) -> (E, N, T), 0 elsewhere."""
        numbers = numbers.to(self.rewards.dtype).unsqueeze(-1)
        return torch.where(self.response_mask, numbers, 0.0)
