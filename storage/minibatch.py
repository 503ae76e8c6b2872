"""Micro-batches: rows of similar length, as many as fit a budget of tokens.

A row is one line of the model's input: the prompt and the response of one turn, or of several turns
that extend one another (`storage.merged`), padded on the right to the longest row of its
micro-batch. Only here do ragged ids become tensors.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from common.ranks import ALONE, Ranks


class Sample(NamedTuple):
    """The ids of a turn. A missing turn has none."""

    prompt: Sequence[int]
    response: Sequence[int]
    temperature: float = 1.0  # at which the response was sampled

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass
class MicroBatch:
    rows: Tensor  # (turns,) indices of the turns, in the order of their responses
    ids: Tensor  # (B, L) prompt, response, padding
    response_mask: Tensor  # (B, L) True on response tokens of all turns of a row
    tokens: Tensor  # (R,) the sampled tokens, which need not be those of ids (`storage.merged`)
    temperature: Tensor  # (R,) at which they were sampled


class OnePerTurn:
    """The paper's layout: each turn has a row of the model to itself."""

    def together(self, turns: Sequence[int]) -> list[list[int]]:
        """Return the turns grouped by row, from old to new."""
        return [[turn] for turn in sorted(turns)]

    def shuffled(self, turns: Sequence[int], minibatch: int, generator) -> list[int]:
        """Return the turns in random order. minibatch: turns of an optimizer step"""
        turns = sorted(turns)  # the order depends on the generator alone, not on the caller
        return [turns[i] for i in torch.randperm(len(turns), generator=generator).tolist()]


def one_per_turn(samples: list[Sample], n_env: int) -> OnePerTurn:
    return OnePerTurn()


def micro_batches(
    samples: list[Sample], rows: list[list[int]], token_budget: int,
    device: torch.device | str = "cpu", ranks: Ranks = ALONE,
) -> Iterator[MicroBatch]:  # fmt: skip
    """Yield this rank's share of some rows in micro-batches of at most token_budget padded tokens.

    rows: indices of the samples of each row, from old to new; the last one holds all others
    A row that is longer than the budget gets a micro-batch of its own.
    """
    rows = sorted(rows, key=lambda turns: (samples[turns[-1]].length, turns[-1]))  # little padding
    for chosen in ranks.deal(rows, partial(_cut, samples=samples, token_budget=token_budget)):
        yield _pad(chosen, samples, device)


def _cut(rows: list[list[int]], samples: list[Sample], token_budget: int) -> list[list[list[int]]]:
    parts: list[list[list[int]]] = []  # micro-batches: a list of rows each
    for turns in rows:  # from short to long: the row that comes last decides the padded width
        if not parts or (len(parts[-1]) + 1) * samples[turns[-1]].length > token_budget:
            parts.append([])
        parts[-1].append(turns)
    return parts


def _pad(rows: list[list[int]], samples: list[Sample], device) -> MicroBatch:
    """Without rows, return one row of padding alone, which a model can compute."""
    whole = [samples[turns[-1]] for turns in rows]  # the last prompt holds all earlier turns
    lines = [tensor(chain(sample.prompt, sample.response)) for sample in whole] or [tensor([0, 0])]
    masks = [torch.zeros(len(line), dtype=torch.bool) for line in lines]
    for mask, turns in zip(masks, rows, strict=False):
        for turn in turns:
            mask[len(samples[turn].prompt) : samples[turn].length] = True  # prompts are not sampled
    turns = list(chain(*rows))
    tokens = tensor(chain(*[samples[turn].response for turn in turns]))  # never encoded again
    lengths = torch.tensor([len(samples[turn].response) for turn in turns], dtype=torch.long)
    temperature = torch.tensor([samples[turn].temperature for turn in turns])
    return MicroBatch(
        tensor(turns),
        # 0 pads, though it may be a real token: the mask alone says what is a response.
        pad_sequence(lines, batch_first=True).to(device),
        pad_sequence(masks, batch_first=True).to(device),
        tokens.to(device),
        temperature.repeat_interleave(lengths).to(device),
    )


def tensor(ids) -> Tensor:
    """Return some ids as a tensor, (len,)."""
    ids = array("i", ids)  # torch.tensor(list) takes three times as long
    return torch.frombuffer(ids, dtype=torch.int32).long() if ids else torch.zeros(0).long()
