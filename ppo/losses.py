"""The PPO losses per token, over the flat response tokens of any number of turns.

Each returns one number per token, (R,) in and (R,) out; the caller sums and divides by ONE
denominator per minibatch, so that gradients do not depend on how it was cut. Pure functions.
"""

import torch
from torch import Tensor


def policy_loss(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, clip: float, cap: float = float("inf")
):
    """Clipped surrogate (PPO, eq. 7). Returns (loss, clipped), both (R,).

    loss = max(-A ratio, -A clip(ratio, 1 - clip, 1 + clip)),  ratio = exp(logps - old_logps)

    cap: truncates the ratio (Ionides 2008), where old_logps are another program's and a token's may
    be far off: with A < 0 nothing else bounds it
    """
    ratio = (logps - old_logps).exp().clamp(max=cap)
    plain = -advantages * ratio
    limited = -advantages * ratio.clamp(1 - clip, 1 + clip)
    return torch.maximum(plain, limited), (limited > plain)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None):
    """Half the squared error, with the step away from old_values clipped if clip is given. (R,)"""
    loss = (values - returns).square()
    if clip is not None:
        near = old_values + (values - old_values).clamp(-clip, clip)
        loss = torch.maximum(loss, (near - returns).square())
    return 0.5 * loss


def first_token_weights(response_mask: Tensor, weight: float) -> Tensor:
    """Weights of the value loss, same shape as response_mask (..., T): `weight` on the first token
    of each turn (its value is what the step discount hands to the turn before), 1 on the others,
    0 elsewhere. Divide the loss by their sum."""
    mask = response_mask.bool()
    first = mask & (mask.cumsum(-1) == 1)
    return torch.where(first, weight, mask.to(torch.float32))


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns) over (R,): 1 is perfect, 0 no better than the mean.
    0 where the returns do not vary."""
    variance = returns.var(unbiased=False)
    if variance <= 1e-12:
        return 0.0
    return (1 - (returns - values).var(unbiased=False) / variance).item()
