"""The PPO losses per token, over the flat response tokens (R,) of any number of turns.

The caller sums them and divides by ONE denominator per minibatch, so that gradients do not depend
on how the minibatch was cut. A mean per micro-batch would favour the tokens of short turns.
"""

import torch
from torch import Tensor


def policy_loss(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, clip: float
) -> tuple[Tensor, Tensor]:
    """Clipped surrogate (PPO, eq. 7). Returns the loss and whether it was clipped, both (R,).

    loss = max(-A ratio, -A clip(ratio, 1 - clip, 1 + clip)),  ratio = exp(logps - old_logps)
    """
    return surrogate((logps - old_logps).exp(), advantages, 1 - clip, 1 + clip)


def surrogate(
    ratio: Tensor, advantages: Tensor, least: float, most: float
) -> tuple[Tensor, Tensor]:
    """The surrogate of given ratios (R,), clipped to least and most."""
    plain = -advantages * ratio
    # Beyond the clip range this side is constant, so a token that has gone far enough in the
    # direction of its advantage gets no more gradient.
    limited = -advantages * ratio.clamp(least, most)
    # The maximum is the pessimistic side: the clip limits gains, never the way back.
    return torch.maximum(plain, limited), (limited > plain)


def sampled_logps(batch, micro_batch, logps: Tensor) -> Tensor:
    """Return log pi_old of a micro-batch's tokens (R,), whatever their log-probs are now."""
    return batch.take(batch.logps, micro_batch.rows)


def value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Half the squared error (R,), pessimistic about steps beyond old_values +- clip.

    clip: largest step that may still gain, in units of the returns; inf: no clipping
    """
    loss = (values - returns).square()
    # As for the policy, the larger loss counts: beyond the clip a step towards the return earns
    # nothing. With returns of about 10 (Crafter) turn it off, or the critic cannot follow them.
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum(loss, (near - returns).square())


def first_token_weights(response_mask: Tensor, weight: float) -> Tensor:
    """Weights of the value loss, (..., T): `weight` on each turn's first token, 1 on its others. If
    `weight` is inf, 1 on first tokens alone.

    Divide the loss by their sum, so that `weight` does not act as a learning rate.
    """
    mask = response_mask.bool()
    # A turn's first value is the one that the step discount hands to the turn before.
    first = mask & (mask.cumsum(-1) == 1)
    if weight == float("inf"):
        return first.to(torch.float32)
    return torch.where(first, weight, mask.to(torch.float32))


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns) over (R,): 1 is perfect, 0 as good as the mean."""
    variance = returns.var(unbiased=False)
    if variance <= 1e-12:  # where returns are equal there is nothing to explain
        return 0.0
    return (1 - (returns - values).var(unbiased=False) / variance).item()
