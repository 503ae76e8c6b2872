"""Micro-batches: rows of similar length, as many as fit a budget of tokens.

A row is one turn, prompt and response, padded on the right up to the longest row of its
micro-batch. Sorting by length keeps padding small; the budget keeps memory flat whatever the
lengths are. This is the one place where ragged ids become tensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class MicroBatch:
    rows: Tensor  # (B,) indices of the turns, into the lists that were given
    ids: Tensor  # (B, L) prompt, response, padding
    response_mask: Tensor  # (B, L) True on response tokens


def micro_batches(
    prompts: list[list[int]],
    responses: list[list[int]],
    rows: list[int],
    token_budget: int,
    device: torch.device | str = "cpu",
) -> Iterator[MicroBatch]:
    """Cut `rows` into micro-batches of at most token_budget padded tokens (one row at least)."""
    lengths = {row: len(prompts[row]) + len(responses[row]) for row in rows}
    pending: list[int] = []
    for row in sorted(rows, key=lambda row: (lengths[row], row)):
        if pending and (len(pending) + 1) * lengths[row] > token_budget:
            yield _pad(prompts, responses, pending, device)
            pending = []
        pending.append(row)
    if pending:
        yield _pad(prompts, responses, pending, device)


def _pad(prompts, responses, rows: list[int], device) -> MicroBatch:
    longest = max(len(prompts[row]) + len(responses[row]) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)  # 0 is never looked at: see the mask
    response_mask = torch.zeros(len(rows), longest, dtype=torch.bool)
    for b, row in enumerate(rows):
        start, end = len(prompts[row]), len(prompts[row]) + len(responses[row])
        ids[b, :end] = torch.tensor(prompts[row] + responses[row])
        response_mask[b, start:end] = True
    return MicroBatch(torch.tensor(rows), ids.to(device), response_mask.to(device))
