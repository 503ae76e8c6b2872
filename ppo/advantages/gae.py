"""Dual-discount GAE (Verlog, eq. 2): one discount from turn to turn, another inside a turn."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # the package re-exports from this file
    from ppo.advantages import Batch


def dual_gae(batch: "Batch") -> tuple[Tensor, Tensor]:
    """The paper's estimator. Returns the advantages and the returns of every response token, both
    (E, N, T), 0 elsewhere. Returns are what the critic learns."""
    return dual_discount_gae(
        rewards=batch.rewards,
        values=batch.values,
        response_mask=batch.response_mask,
        next_values=batch.next_values,
        episode_ends=batch.episode_ends,
        gamma_step=batch.gamma_step,
        lam_step=batch.lam_step,
        gamma_token=batch.gamma_token,
        lam_token=batch.lam_token,
    )


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

    # If the mask has gaps (in the storage it has none), move the tokens of each turn to the front,
    # so that token k + 1 stands right after token k.
    at = torch.arange(T, device=values.device)
    front = at < lengths.unsqueeze(-1)  # (E, N, T)
    r, v = torch.where(front, rewards, 0.0), torch.where(front, values, 0.0)
    gaps = not torch.equal(front, mask)
    if gaps:
        r[front], v[front] = rewards[mask], values[mask]

    # V_next is V of the turn's next token. Only the last token looks at the next turn (gamma_step).
    # A missing turn (no token) stands behind an episode's end, and what is put at 0 is masked.
    last = (lengths - 1).clamp(min=0).unsqueeze(-1)  # (E, N, 1)
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
