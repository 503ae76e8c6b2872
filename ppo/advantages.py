"""Advantages of sampled tokens: dual-discount GAE (Verlog, eq. 2), and where others are added.

An estimator is a pure function of one `Batch` that returns the advantages and the returns of every
response token. `--advantages` takes a key of ESTIMATORS or `module:function`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from storage.named import check_call, defined_at, find


@dataclass(frozen=True)
class Batch:
    """What an estimator sees of E turns of each of N environments, at most T tokens a turn.

    rewards: (E, N, T), the KL penalty included; the environment's reward is on the last token
    values: (E, N, T), where values[t, n, k] is V of the state before token k of turn t
    response_mask: (E, N, T), True where a token was sampled; every turn has at least one
    next_values: (E, N), V of the state after turn t; 0 where the episode terminated
    episode_ends: (E, N), True where turn t was the last of its episode
    gamma_step, lam_step: discount and GAE lambda from turn to turn
    gamma_token, lam_token: discount and GAE lambda from token to token inside a turn
    """

    rewards: Tensor
    values: Tensor
    response_mask: Tensor
    next_values: Tensor
    episode_ends: Tensor
    gamma_step: float
    lam_step: float
    gamma_token: float
    lam_token: float


def make_estimator(args) -> Callable:
    """Return `estimate(rewards=..., ...)`, which calls the estimator of --advantages on a `Batch`.
    ValueError: there is no such estimator"""
    estimator = find("estimator", args.advantages, ESTIMATORS)
    check_call(estimator, "batch")
    discounts = dict(gamma_step=args.gamma_step, lam_step=args.lam_step)
    discounts |= dict(gamma_token=args.gamma_token, lam_token=args.lam_token)
    name = f"{defined_at(estimator)}estimator {args.advantages!r}"
    return lambda **turns: checked(estimator, Batch(**turns, **discounts), name)


def checked(estimator: Callable, batch: Batch, name: str) -> tuple[Tensor, Tensor]:
    """Return what an estimator does. ValueError: it is not two finite tensors of (E, N, T)."""
    result = estimator(batch)
    pair = tuple(result) if isinstance(result, tuple | list) else (result,)
    *got, wanted = [
        f"{x.type()} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        for x in (*pair, batch.values)
    ]
    if got != [wanted, wanted]:
        raise ValueError(f"{name} returned {', '.join(got)}, not advantages, returns: 2 x {wanted}")
    known = all(x.isfinite().all() for x in (batch.values, batch.rewards))
    if known and not all(x[batch.response_mask].isfinite().all() for x in pair):
        raise ValueError(f"{name} returned numbers that are not finite (nan or inf)")
    return pair


def dual_gae(batch: Batch) -> tuple[Tensor, Tensor]:
    """The paper's estimator. Returns advantages and returns, both (E, N, T)."""
    return dual_discount_gae(**vars(batch))


def dual_discount_gae(
    rewards: Tensor, values: Tensor, response_mask: Tensor, next_values: Tensor,
    episode_ends: Tensor, gamma_step: float, lam_step: float, gamma_token: float, lam_token: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return advantages and returns of every response token, both (E, N, T), 0 elsewhere.

    The arguments are the fields of `Batch`; next_values holds the bootstrap value where the batch
    cuts an episode. Time runs over the sampled tokens of an environment's turns, one by one:

        delta = r + gamma V_next - V,   A = delta + gamma lam A_next   (eq. 2)

    (gamma, lam) are (gamma_token, lam_token) inside a turn, and (gamma_step, lam_step) from the
    last token of a turn to the first of the next. Prompt tokens are state, never a step of the
    recursion. Returns are A + V. With gamma_token = lam_token = 1 this is, for token k of
    turn t, G = sum_{j>=k} r_j + gamma_step ((1 - lam_step) V_next + lam_step G_next),  A = G - V.
    """
    E, N, T = values.shape
    mask = response_mask.bool()
    lengths = mask.sum(-1)  # (E, N)
    assert lengths.min() > 0, f"a turn without a response token among {tuple(lengths.shape)}"

    # If the mask has gaps (in the storage it has none), move the tokens of each turn to the front,
    # so that token k + 1 stands right after token k.
    at = torch.arange(T, device=values.device)
    front = at < lengths.unsqueeze(-1)  # (E, N, T)
    r, v = torch.where(front, rewards, 0.0), torch.where(front, values, 0.0)
    gaps = not torch.equal(front, mask)
    if gaps:
        r[front], v[front] = rewards[mask], values[mask]

    # V_next is V of the turn's next token. Only the last token looks at the next turn (gamma_step).
    last = (lengths - 1).unsqueeze(-1)  # (E, N, 1)
    v_after = torch.zeros_like(v)
    v_after[..., :-1] = gamma_token * v[..., 1:]
    v_after.scatter_(-1, last, gamma_step * next_values.to(v.dtype).unsqueeze(-1))
    delta = torch.where(front, r + v_after - v, 0.0)

    # First each turn by itself, as if nothing came after its last token.
    c = gamma_token * lam_token
    advantages = _within_turns(delta, c)

    # Then from turn to turn, backwards: the first advantage of turn t + 1 reaches every token of
    # turn t, discounted once by the step pair and by c for each token in between.
    powers = torch.tensor(c, dtype=v.dtype, device=v.device) ** at  # c^0 .. c^(T-1)
    decay = torch.where(front, powers[(last - at).clamp(min=0)], 0.0)  # from the last token back
    carry = torch.zeros_like(v[0, :, 0])  # (N,): beyond the batch cut only V is known
    for t in reversed(range(E)):
        # The recursion restarts where an episode ends: no reward of the next one flows back.
        carry = gamma_step * lam_step * carry.masked_fill(episode_ends[t].bool(), 0.0)
        advantages[t] += decay[t] * carry.unsqueeze(-1)
        carry = advantages[t, :, 0]

    returns = torch.where(front, advantages + v, 0.0)
    if gaps:  # back to their places
        advantages = torch.zeros_like(v).masked_scatter(mask, advantages[front])
        returns = torch.zeros_like(v).masked_scatter(mask, returns[front])
    return advantages, returns


def _within_turns(delta: Tensor, c: float) -> Tensor:
    """A_k = delta_k + c A_{k+1} of all turns at once, (..., T), in log2(T) doubling steps."""
    sums, reach = delta, 1  # each sum holds the discounted delta of `reach` tokens
    while reach < delta.shape[-1]:
        longer = sums.clone()
        longer[..., :-reach].add_(sums[..., reach:], alpha=c**reach)
        sums, reach = longer, 2 * reach
    return sums


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Shift and scale the masked entries to mean 0 and standard deviation 1; the rest becomes 0."""
    kept = advantages[mask.bool()]
    white = torch.zeros_like(advantages)
    white[mask.bool()] = (kept - kept.mean()) / (kept.std(unbiased=False) + eps)
    return white


ESTIMATORS = {"dual-gae": "ppo.advantages:dual_gae"}  # --advantages
