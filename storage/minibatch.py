"""Micro-batches: rows of similar length, as many as fit a budget of tokens.

A row is the prompt and the response of one turn, or of a chain of turns that extend one another
(`storage.merged`), padded on the right to the longest row of its micro-batch. Only here do ragged
ids become tensors, and only here are rows dealt out to ranks.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from common.ranks import ALONE, Ranks
from storage.compact import tensor
from storage.merged import in_chains


@dataclass
class MicroBatch:
    rows: Tensor  # (turns,) indices in `prompts` and `responses`, in the order of their responses
    ids: Tensor  # (B, L) prompt, response, padding
    response_mask: Tensor  # (B, L) True on response tokens of all turns of a row
    tokens: Tensor  # (R,) the sampled tokens, which may differ from those of ids (`storage.merged`)
    temperature: Tensor  # (R,) the temperature at which each of them was sampled


def micro_batches(
    prompts: list[array], responses: list[array], rows: list[int], token_budget: int,
    device: torch.device | str = "cpu", ranks: Ranks = ALONE, chain_of: list[int] | None = None,
) -> Iterator[MicroBatch]:  # fmt: skip
    """Yield this rank's share of the turns `rows` in micro-batches of at most token_budget padded
    tokens.

    chain_of: the number of each turn's chain (`storage.merged`); None: each turn is a row
    A row that is longer than the budget gets a micro-batch of its own. All ranks get equally many
    micro-batches; ranks that run out get dummies: no rows, one turn with an empty response mask.
    """
    # The last turn of a chain holds all others, so it stands for the chain.
    chains = {chain[-1]: chain for chain in in_chains(rows, chain_of or range(len(prompts)))}
    lengths = {row: len(prompts[row]) + len(responses[row]) for row in chains}
    ordered = sorted(chains, key=lambda row: (lengths[row], row))  # little padding, whatever comes
    # Every size-th row of the sorted ones: each rank gets its share of the long turns.
    plans = [_cut(ordered[rank :: ranks.size], lengths, token_budget) for rank in range(ranks.size)]
    for chosen in plans[ranks.rank]:
        yield _pad(prompts, responses, [chains[row] for row in chosen], device)
    # Where ZeRO shards the model, a pass is a collective: others would wait for a rank with fewer.
    for _ in range(max(map(len, plans)) - len(plans[ranks.rank])):
        ids = torch.zeros(1, 2, dtype=torch.long, device=device)
        tokens = ids[0, :0]
        yield MicroBatch(tokens.cpu(), ids, ids.bool(), tokens, tokens.float())


def _cut(ordered: list[int], lengths: dict[int, int], token_budget: int) -> list[list[int]]:
    cuts: list[list[int]] = []
    for row in ordered:  # from short to long: the row that comes last decides the padded width
        if not cuts or (len(cuts[-1]) + 1) * lengths[row] > token_budget:
            cuts.append([])
        cuts[-1].append(row)
    return cuts


def _pad(prompts, responses, chains: list[list[int]], device) -> MicroBatch:
    rows = [tensor(prompts[turns[-1]] + responses[turns[-1]]) for turns in chains]
    masks = [torch.zeros(len(row), dtype=torch.bool) for row in rows]
    for mask, turns in zip(masks, chains, strict=True):
        for turn in turns:
            start = len(prompts[turn])
            mask[start : start + len(responses[turn])] = True
    # 0 pads, though it may be a real token: the mask alone says what is a response.
    ids, mask = pad_sequence(rows, batch_first=True), pad_sequence(masks, batch_first=True)
    turns = list(chain.from_iterable(chains))
    tokens = tensor(chain.from_iterable(responses[turn] for turn in turns)).to(device)
    temperature = torch.ones(len(tokens), device=device)  # the storage writes the responses' own
    return MicroBatch(torch.tensor(turns), ids.to(device), mask.to(device), tokens, temperature)
