"""Two other estimators with a critic, for comparison with dual-discount GAE.

Each takes a `Batch` and returns the advantages and the returns of every response token, both
(E, N, T), 0 elsewhere.
"""

from dataclasses import replace

import torch
from torch import Tensor

from ppo.advantages import Batch, dual_discount_gae
from ppo.advantages.gae import dual_gae


def token_gae(batch: Batch) -> tuple[Tensor, Tensor]:
    """GAE over an episode's response tokens as if they were one long response (Schulman et al.
    2016): gamma_token and lam_token from turn to turn, too."""
    # Inside a turn nothing changes: only the discounts from turn to turn are replaced.
    return dual_gae(replace(batch, gamma_step=batch.gamma_token, lam_step=batch.lam_token))


def turn_gae(batch: Batch) -> tuple[Tensor, Tensor]:
    """GAE over turns, each of which is one action. The critic has one value a turn, V(s_t, 0), as
    ArCHer's utterance-level critic (Zhou et al. 2024):

        delta_t = r_t + gamma V(s_{t+1}, 0) - V(s_t, 0),   A_t = delta_t + gamma lam A_{t+1}

    r_t sums the rewards of the turn's tokens, all of which get A_t. Their returns, A_t + V(s_t, 0),
    are right at the first token; with --first-token-weight inf the critic learns there alone.
    """
    mask = batch.response_mask.bool()
    first = mask & (mask.cumsum(-1) == 1)  # V before any token of the response: of the state
    # A turn as a response of one token: then the discounts inside a turn never apply.
    advantages, returns = dual_discount_gae(
        rewards=batch.turn_rewards.unsqueeze(-1),
        values=torch.where(first, batch.values, 0.0).sum(-1, True),
        response_mask=mask.any(-1, True),
        next_values=batch.next_values,
        episode_ends=batch.episode_ends,
        gamma_step=batch.gamma_step,
        lam_step=batch.lam_step,
        gamma_token=1.0,  # of no effect: a turn has one token here
        lam_token=1.0,
    )
    return batch.spread(advantages[..., 0]), batch.spread(returns[..., 0])  # the turn is the action
