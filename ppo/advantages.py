"""Dual-discount generalised advantage estimation over response tokens (Verlog, eq. 2).

Time runs over the sampled tokens of one environment's turns, one after the other. Inside a turn it
is discounted by (gamma_token, lam_token), from the last token of a turn to the first token of the
next by (gamma_step, lam_step). Prompt tokens are state, never a step of the recursion. Pure
functions of tensors.
"""

import torch
from torch import Tensor


def dual_discount_gae(
    rewards: Tensor,
    values: Tensor,
    response_mask: Tensor,
    next_values: Tensor,
    episode_ends: Tensor,
    gamma_step: float,
    lam_step: float,
    gamma_token: float,
    lam_token: float,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of every response token, both (E, N, T), 0 where none was sampled.

    rewards, values: (E, N, T); values[t, n, k] is V of the state before token k of turn t
    response_mask: (E, N, T), True where a token was sampled; at least one per turn
    next_values: (E, N), value of the state after turn t: 0 where terminated, the bootstrap value
        at the batch cut (and at a time limit, if it is not a failure)
    episode_ends: (E, N), True where turn t was the last of its episode

        delta = r + gamma V_next - V,   A = delta + gamma lam A_next   (eq. 2)

    returns = A + V. With gamma_token = lam_token = 1 this is, for token k of turn t,
    G = sum_{j>=k} r_j + gamma_step ((1 - lam_step) V_next + lam_step G_next),  A = G - V.
    """
    E, N, T = values.shape
    mask = response_mask.bool()
    lengths = mask.sum(-1)  # (E, N)
    assert lengths.min() > 0, f"a turn without a response token among {tuple(lengths.shape)}"

    # Move the tokens of each turn to the front, so that token k + 1 stands right after token k.
    at = torch.arange(T, device=values.device)
    front = at < lengths.unsqueeze(-1)  # (E, N, T)
    moved = not torch.equal(front, mask)
    r, v = torch.zeros_like(values), torch.zeros_like(values)
    if moved:
        r[front], v[front] = rewards[mask].to(values.dtype), values[mask]
    else:
        r, v = torch.where(front, rewards, r), torch.where(front, values, v)
    last = (lengths - 1).unsqueeze(-1)  # (E, N, 1)
    v_after = torch.zeros_like(v)
    v_after[..., :-1] = gamma_token * v[..., 1:]
    v_after.scatter_(-1, last, gamma_step * next_values.to(v.dtype).unsqueeze(-1))
    delta = torch.where(front, r + v_after - v, 0.0)

    c = gamma_token * lam_token
    advantages = _within_turns(delta, c)

    # From turn to turn, backwards: the first advantage of turn t + 1 reaches every token of turn t.
    powers = torch.tensor(c, dtype=v.dtype, device=v.device) ** at  # c^0 .. c^(T-1)
    decay = torch.where(front, powers[(last - at).clamp(min=0)], 0.0)  # from the last token back
    carry = torch.zeros_like(v[0, :, 0])  # (N,), nothing is known beyond the batch cut
    for t in reversed(range(E)):
        carry = gamma_step * lam_step * carry.masked_fill(episode_ends[t].bool(), 0.0)
        advantages[t] += decay[t] * carry.unsqueeze(-1)
        carry = advantages[t, :, 0]

    returns = torch.where(front, advantages + v, 0.0)
    if not moved:
        return advantages, returns
    in_place = torch.zeros_like(v), torch.zeros_like(v)
    in_place[0][mask], in_place[1][mask] = advantages[front], returns[front]
    return in_place


def _within_turns(delta: Tensor, c: float) -> Tensor:
    """A_k = delta_k + c A_{k+1} of all turns at once, (..., T), in log2(T) doubling steps."""
    sums, reach = delta, 1  # each sum holds the delta of `reach` tokens
    while reach < delta.shape[-1]:
        longer = sums.clone()
        longer[..., :-reach].add_(sums[..., reach:], alpha=c**reach)
        sums, reach = longer, 2 * reach
    return sums


def whiten(advantages: Tensor, mask: Tensor, eps: float = 1e-8) -> Tensor:
    """Mean 0 and standard deviation 1 over the masked entries; the rest becomes 0. Any shape."""
    kept = advantages[mask.bool()]
    white = torch.zeros_like(advantages)
    white[mask.bool()] = (kept - kept.mean()) / (kept.std(unbiased=False) + eps)
    return white
