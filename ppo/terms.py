"""What an update may minimise beyond the paper: ratios of turns, other bounds, KL in the loss."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from common.clip import clip_of
from ppo.kl import KLPenalty
from ppo.losses import policy_loss, sampled_logps, surrogate

INF = float("inf")


def terms_of(kl: KLPenalty | None) -> list[Callable]:
    """Return the terms of an `Agent`'s loss. kl: what `make_kl` returns"""
    return [kl] if isinstance(kl, KLInLoss) else []


def make_policy_loss(clip: float | str, tis_cap: float | None) -> Callable:
    """Return the policy loss of --clip and --tis-cap; see `Agent`."""
    low, high, of = clip_of(clip)
    if low == high and of == "token" and tis_cap is None:
        return policy_loss
    return partial(bounded_policy_loss, least=1 - low, most=1 + high, cap=tis_cap or INF)


def bounded_policy_loss(
    logps: Tensor,
    old_logps: Tensor,
    advantages: Tensor,
    clip,
    least: float,
    most: float,
    cap: float,
) -> tuple[Tensor, Tensor]:
    """`policy_loss` with two bounds (clip-higher: DAPO, section 3.1) and a cap of the ratio.

    cap: with A < 0 PPO's maximum takes the unclipped side, which nothing else bounds. That matters
        where old_logps come from the engine (--tis-cap): a single token of theirs may be far off.
        It truncates importance weights (Ionides 2008), and is the dual clip of Ye et al. (2020).
    """
    ratio = (logps - old_logps).exp()
    loss, clipped = surrogate(ratio.clamp(max=cap), advantages, least, most)
    return loss, clipped | (ratio > cap)  # such a token gets no gradient either


def make_old_logps(clip: float | str) -> Callable:
    """Return what the ratios of --clip are taken against; see `Agent`."""
    return turn_logps if clip_of(clip).of == "turn" else sampled_logps


def turn_logps(batch, micro_batch, logps: Tensor) -> Tensor:
    """Return old log-probs (R,) that give each token the ratio of its turn: the geometric mean.

    With s = exp(mean over the turn of log pi - log pi_old) a token's ratio is s pi / sg(pi), where
    sg has no gradient (GSPO-token, Zheng et al. 2025, section 4.3, with turns for sequences). If
    all tokens of a turn have one advantage, the gradient is that of s times the advantage.
    """
    moved = logps.detach() - sampled_logps(batch, micro_batch, logps)
    mask = batch.masks(micro_batch.rows)  # (turns, T)
    lengths = mask.sum(-1)
    by_turn = torch.zeros(mask.shape, dtype=moved.dtype, device=moved.device)
    by_turn[mask] = moved
    return logps.detach() - (by_turn.sum(-1) / lengths).repeat_interleave(lengths)


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
