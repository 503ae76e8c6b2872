"""Advantages of sampled tokens: what an estimator gets, which ones there are, and how to add one.

An estimator is a pure function of one `Batch`. `--advantages` takes a key of ESTIMATORS or
`module:function`. With a critic it returns the advantages and the returns of every response token,
and without a critic (`estimator.critic = False`) the advantages alone, each (E, N, T).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ppo.advantages.gae import dual_discount_gae as dual_discount_gae  # other tools import it here

ESTIMATORS = {  # --advantages
    "dual-gae": "ppo.advantages.gae:dual_gae",
    "token-gae": "ppo.advantages.gae_variants:token_gae",
    "turn-gae": "ppo.advantages.gae_variants:turn_gae",
    "rloo": "ppo.advantages.groups:rloo",
    "grpo": "ppo.advantages.groups:grpo",
    "gigpo": "ppo.advantages.groups:gigpo",
    "vine": "ppo.advantages.vine:vine",
}


@dataclass(frozen=True)  # estimators are pure functions of it
class Batch:
    """Turns of each of N environments, at most E of them, at most T tokens a turn.

    With fixed-turn batches every environment has E turns. With whole episodes E is the most turns
    that one environment has; the others lack their last ones.

    rewards: (E, N, T); the environment's reward is on the last token, and if the KL is part of the
        reward, each token has its penalty
    values: (E, N, T), where values[t, n, k] is V of the state before token k of turn t; None
        without a critic
    response_mask: (E, N, T), True where a token was sampled; a missing turn has none
    next_values: (E, N), V of the state after turn t; 0 where the episode terminated; None without a
        critic
    episode_ends: (E, N), True where turn t was the last of its episode, or is missing
    steps: E lists of N: what the environment returned for each turn, None where it is missing
    gamma_step, lam_step: discount and GAE lambda from turn to turn
    gamma_token, lam_token: discount and GAE lambda from token to token inside a turn
    """

    rewards: Tensor
    values: Tensor | None  # no estimator that compares episodes needs a critic
    response_mask: Tensor
    next_values: Tensor | None
    episode_ends: Tensor
    steps: list[list]  # their seeds and observations say which turns may be compared
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
        numbers = numbers.to(self.rewards.dtype).unsqueeze(-1)  # groups are compared in fp64
        return torch.where(self.response_mask, numbers, 0.0)


def make_estimator(update) -> Callable:
    """Return `estimate(rewards=..., ...)`, which calls the estimator of --advantages on a `Batch`.
    UserError: there is no such estimator"""
    from ppo.advantages.checked import checked  # a user's estimator may return anything

    estimator = checked(update.advantages, ESTIMATORS)

    def estimate(**turns) -> tuple[Tensor, Tensor | None]:
        batch = Batch(
            **turns,
            gamma_step=update.gamma_step,
            lam_step=update.lam_step,
            gamma_token=update.gamma_token,
            lam_token=update.lam_token,
        )
        return estimator(batch)

    return estimate


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Shift and scale the masked entries to mean 0 and standard deviation 1; the rest becomes 0."""
    kept = advantages[mask.bool()]  # with padding the mean would be drawn towards 0
    white = torch.zeros_like(advantages)
    # eps: where all advantages are equal they become 0, not nan.
    white[mask.bool()] = (kept - kept.mean()) / (kept.std(unbiased=False) + eps)
    return white
