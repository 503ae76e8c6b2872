"""What an update may minimise beyond the paper: a capped ratio, and a KL term in the loss."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from ppo.kl import KLPenalty
from ppo.losses import policy_loss, surrogate


def terms_of(kl: KLPenalty | None) -> list[Callable]:
    """Return the terms of an `Agent`'s loss. kl: what `make_kl` returns"""
    return [kl] if isinstance(kl, KLInLoss) else []


def make_policy_loss(tis_cap: float | None) -> Callable:
    return policy_loss if tis_cap is None else partial(capped_policy_loss, cap=tis_cap)


def capped_policy_loss(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, clip: float, cap: float
) -> tuple[Tensor, Tensor]:
    """`policy_loss` with an upper bound of the ratio (truncated importance sampling, Ionides 2008).

    With A < 0 PPO's maximum takes the unclipped side, which nothing else bounds. That matters where
    old_logps come from the engine (--tis-cap): a single token of theirs may be far off.
    """
    return surrogate((logps - old_logps).exp().clamp(max=cap), advantages, clip)


class KLInLoss(KLPenalty):
    """The KL estimate as a term of the loss, as in GRPO, and not in the rewards. k1 cannot be used
    there: its gradient is zero in expectation."""

    reward_coef = 0.0

    def __call__(self, scores, batch, micro_batch) -> Tensor | float:
        """Return beta times the sum of the estimates of a micro-batch's tokens."""
        if self.coef == 0:  # there may be no reference, and log pi_0 is unknown
            return 0.0
        ref_logps = batch.take(batch.ref_logps, micro_batch.rows)
        return self.coef * self.estimate(scores.logps, ref_logps).sum()
