"""FlashAttention on packed rows for the fake device: its checks, and its numbers the slow way.

The checks are those of ATen/native/transformers/cuda/flash_attn/flash_api.cpp. The numbers are
computed in fp32 and returned in the type of the inputs; the backward pass follows from
P = softmax(Q K^T / s) and O = P V:  dV = P^T dO,  dP = dO V^T,  dS = P (dP - rowsum(dO O)).
"""

import torch
from torch import Tensor

LIBRARY = torch.library.Library("aten", "IMPL", "CUDA")
HALF = (torch.float16, torch.bfloat16)


def install() -> None:
    LIBRARY.impl("_flash_attention_forward", forward)
    LIBRARY.impl("_flash_attention_backward", backward)


def forward(
    query, key, value, ends_q, ends_k, longest_q, longest_k, dropout, causal, debug,
    *, scale=None, window_size_left=None, window_size_right=None, **options,
):  # fmt: skip
    """Return the output (tokens, heads, D), its log-sum-exp (heads, tokens) and three unused."""
    check(query, key, value, ends_q, ends_k)
    check_longest(ends_q, longest_q)
    check_longest(ends_k, longest_k)
    q, k, v = on_host(query, key, value)
    out, logsumexp = torch.zeros_like(q), torch.zeros(q.shape[1], q.shape[0])
    window = (window_size_left, 0 if causal else window_size_right)
    for rows, columns in turns(ends_q, ends_k):
        scores = scores_of(q[rows], k[columns], scale, window)
        logsumexp[:, rows] = scores.logsumexp(-1)
        out[rows] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[columns])
    seed, offset = (torch.zeros(n, dtype=torch.uint64).to(query.device) for n in (2, 1))
    unused = query.new_empty(0)
    return out.to(query), logsumexp.to(query.device), seed, offset, unused


def backward(
    grad, query, key, value, out, logsumexp, ends_q, ends_k, longest_q, longest_k, dropout, causal,
    seed, offset, *, scale=None, window_size_left=None, window_size_right=None, **options,
):  # fmt: skip
    """Return the gradients of query, key and value."""
    check(query, key, value, ends_q, ends_k)
    if grad.dtype != query.dtype or out.dtype != query.dtype:
        raise RuntimeError("query, its gradient and the output must have the same dtype")
    q, k, v = on_host(query, key, value)
    gradients = [torch.zeros_like(tensor) for tensor in (q, k, v)]
    grad, out, logsumexp = grad.cpu().float(), out.cpu().float(), logsumexp.cpu()
    window = (window_size_left, 0 if causal else window_size_right)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    for rows, columns in turns(ends_q, ends_k):
        d_out = grad[rows]
        shares = (scores_of(q[rows], k[columns], scale, window) - logsumexp[:, rows, None]).exp()
        d_shares = torch.einsum("qhd,khd->hqk", d_out, v[columns])
        inner = (d_out * out[rows]).sum(-1).T[..., None]  # (H, Q, 1)
        d_scores = shares * (d_shares - inner) * factor
        gradients[0][rows] = torch.einsum("hqk,khd->qhd", d_scores, k[columns])
        gradients[1][columns] = torch.einsum("hqk,qhd->khd", d_scores, q[rows])
        gradients[2][columns] = torch.einsum("hqk,qhd->khd", shares, d_out)
    served = query.shape[1] // key.shape[1]  # query heads of each key head
    d_key, d_value = (g.unflatten(1, (-1, served)).sum(2) for g in gradients[1:])
    return gradients[0].to(query), d_key.to(key), d_value.to(value)


def check(query: Tensor, key: Tensor, value: Tensor, ends_q: Tensor, ends_k: Tensor) -> None:
    """RuntimeError: the kernel would refuse its inputs, or read beyond them"""
    for tensor in (query, key, value):
        if tensor.dtype not in HALF or tensor.dtype != query.dtype:
            raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
        if not tensor.is_cuda:
            raise RuntimeError("Input tensor must be on CUDA")
        if tensor.stride(-1) != 1:
            raise RuntimeError("Input tensor must have contiguous last dimension")
    for ends, tensor in ((ends_q, query), (ends_k, key)):
        if ends.dtype != torch.int32 or not ends.is_cuda or not ends.is_contiguous():
            raise RuntimeError("cu_seqlens must be int32, contiguous and on CUDA")
        if int(ends[0]) != 0 or int(ends[-1]) != len(tensor):
            raise RuntimeError("cu_seqlens do not cover the tokens: memory is read out of bounds")
    if query.shape[-1] % 8 or query.shape[-1] > 256:
        raise RuntimeError("head_size must be a multiple of 8, and at most 256")
    if query.shape[1] % key.shape[1]:
        raise RuntimeError("Number of heads in key/value must divide number of heads in query")


def check_longest(ends: Tensor, longest: int) -> None:
    if int(ends.diff().max()) > longest:
        raise RuntimeError(f"a sequence is longer than {longest}: the kernel would cut it")


def on_host(query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Return fp32 copies with a key and a value head for each query head."""
    served = query.shape[1] // key.shape[1]
    q, k, v = (tensor.detach().cpu().float() for tensor in (query, key, value))
    return [q, k.repeat_interleave(served, 1), v.repeat_interleave(served, 1)]


def turns(ends_q: Tensor, ends_k: Tensor):
    """Yield the slices of each sequence's queries and of its keys."""
    for q, k in zip(ends_q.cpu().unfold(0, 2, 1), ends_k.cpu().unfold(0, 2, 1), strict=True):
        yield slice(int(q[0]), int(q[1])), slice(int(k[0]), int(k[1]))


def scores_of(q: Tensor, k: Tensor, scale: float | None, window: tuple) -> Tensor:
    """(Q, H, D), (K, H, D) -> (H, Q, K), minus infinity where a query may not look.

    window: tokens to the left and to the right of a query's own place; None or below 0: all
    """
    scores = torch.einsum("qhd,khd->hqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    place = torch.arange(len(q))[:, None] + len(k) - len(q)  # aligned at the last token
    away = torch.arange(len(k)) - place
    for side, distance in zip(window, (-away, away), strict=True):
        if side is not None and side >= 0:
            scores = scores.masked_fill(distance > side, -torch.inf)
    return scores
