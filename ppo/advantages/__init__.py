"""Advantages of sampled tokens: which estimators there are, and where others are added.

An estimator is a pure function of one `Batch`. `--advantages` takes a key of ESTIMATORS or
`module:function`. With a critic it returns the advantages and the returns of every response token,
and with --no-critic the advantages alone, each (E, N, T).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from common.plugins import UserError, check_call, defined_at, find
from ppo.advantages.batch import Batch

ESTIMATORS = {  # --advantages
    "dual-gae": "ppo.advantages.gae:dual_gae",
    "token-gae": "ppo.advantages.gae:token_gae",
    "turn-gae": "ppo.advantages.gae:turn_gae",
    "rloo": "ppo.advantages.groups:rloo",
    "grpo": "ppo.advantages.groups:grpo",
    "gigpo": "ppo.advantages.groups:gigpo",
}


def make_estimator(args) -> Callable:
    """Return `estimate(rewards=..., ...)`, which calls the estimator of --advantages on a `Batch`.
    ValueError: there is no such estimator"""
    estimator = find("estimator", args.advantages, ESTIMATORS)
    check_call(estimator, "batch")
    discounts = dict(gamma_step=args.gamma_step, lam_step=args.lam_step)
    discounts |= dict(gamma_token=args.gamma_token, lam_token=args.lam_token)
    name = f"{defined_at(estimator)}estimator {args.advantages!r}"
    return lambda **turns: checked(estimator, Batch(**turns, **discounts), name)


def checked(estimator: Callable, batch: Batch, name: str) -> tuple[Tensor, Tensor | None]:
    """Return the advantages and the returns, which are None without a critic. ValueError: the
    estimator does not return finite tensors of (E, N, T), two of them or, without a critic, one."""
    result, critic = estimator(batch), batch.values is not None
    given = tuple(result) if isinstance(result, tuple | list) else (result,)
    *got, wanted = [
        f"{x.type()} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        for x in (*given, batch.rewards)
    ]
    if got != [wanted] * (1 + critic):
        words = f"advantages, returns: 2 x {wanted}" if critic else f"advantages: {wanted}"
        raise UserError(f"{name} returned {', '.join(got)}, not {words}")
    known = all(x.isfinite().all() for x in (batch.values, batch.rewards) if x is not None)
    if known and not all(x[batch.response_mask].isfinite().all() for x in given):
        raise UserError(f"{name} returned numbers that are not finite (nan or inf)")
    return given if critic else (*given, None)


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Shift and scale the masked entries to mean 0 and standard deviation 1; the rest becomes 0."""
    kept = advantages[mask.bool()]
    white = torch.zeros_like(advantages)
    white[mask.bool()] = (kept - kept.mean()) / (kept.std(unbiased=False) + eps)
    return white
