"""Micro-batches: rows of similar length, as many as fit a budget of tokens.

A row is the prompt and the response of one turn, padded on the right to the longest row of its
micro-batch. Only here do ragged ids become tensors, and only here are rows dealt out to ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from storage.ranks import ALONE, Ranks


@dataclass
class MicroBatch:
    rows: Tensor  # (B,) indices of the turns in `prompts` and `responses`
    ids: Tensor  # (B, L) prompt, response, padding
    response_mask: Tensor  # (B, L) True on response tokens
    temperature: Tensor | None = None  # (R,) of each response token; None: the run's


def micro_batches(
    prompts: list[list[int]], responses: list[list[int]], rows: list[int], token_budget: int,
    device: torch.device | str = "cpu", ranks: Ranks = ALONE,
) -> Iterator[MicroBatch]:  # fmt: skip
    """Yield this rank's share of `rows` in micro-batches of at most token_budget padded tokens.

    A row that is longer than the budget gets a micro-batch of its own. All ranks get equally many
    micro-batches; ranks that run out get dummies: no rows, one turn with an empty response mask.
    """
    lengths = {row: len(prompts[row]) + len(responses[row]) for row in rows}
    ordered = sorted(rows, key=lambda row: (lengths[row], row))  # little padding, whatever comes
    # Every size-th row of the sorted ones: each rank gets its share of the long turns.
    plans = [_cut(ordered[rank :: ranks.size], lengths, token_budget) for rank in range(ranks.size)]
    for chosen in plans[ranks.rank]:
        yield _pad(prompts, responses, chosen, device)
    # Where ZeRO shards the model, a pass is a collective: others would wait for a rank with fewer.
    for _ in range(max(map(len, plans)) - len(plans[ranks.rank])):
        nothing = torch.zeros(1, 2, dtype=torch.long, device=device)
        yield MicroBatch(torch.tensor([], dtype=torch.long), nothing, nothing.bool())


def _cut(ordered: list[int], lengths: dict[int, int], token_budget: int) -> list[list[int]]:
    cuts: list[list[int]] = []
    for row in ordered:  # from short to long: the row that comes last decides the padded width
        if not cuts or (len(cuts[-1]) + 1) * lengths[row] > token_budget:
            cuts.append([])
        cuts[-1].append(row)
    return cuts


def _pad(prompts, responses, rows: list[int], device) -> MicroBatch:
    turns = [torch.tensor(prompts[row] + responses[row]) for row in rows]
    masks = [torch.arange(len(t)) >= len(prompts[r]) for r, t in zip(rows, turns, strict=True)]
    # 0 pads, though it may be a real token: the mask alone says what is a response.
    ids, mask = pad_sequence(turns, batch_first=True), pad_sequence(masks, batch_first=True)
    return MicroBatch(torch.tensor(rows), ids.to(device), mask.to(device))
