"""Merged turns: turns that extend one another are computed in one row of the model, exactly.

Where a memory only appends, a prompt begins with the last prompt and its response:

    turn 1   prompt 1, response 1
    turn 2   prompt 1, response 1, observation 2, response 2
    turn 3   prompt 1, response 1, observation 2, response 2, observation 3, response 3

In rows of their own, T such turns cost O(T^2) tokens. But attention is causal: what the model
computes at a token depends on the tokens before it and on nothing else, and before each response
the last row holds the same tokens as the response's own row. So this one row, with a span of the
response mask for each turn, gives log-probs, values and gradients of all turns, for O(T) tokens.

The last token of a response may be another one in the next prompt, because nothing of its own turn
comes after it: what ends a turn is sampled as one token, and templates may write it as another. So
micro-batches hold the sampled tokens beside the ids of their rows.

Turns that share a row are called a chain. A chain ends where a prompt does not continue the last
one: at the end of an episode, or where the memory dropped or rewrote something. Advantages,
denominators and minibatches count turns and do not depend on chains.
"""

from collections.abc import Iterable, Sequence

import torch

from storage.minibatch import OnePerTurn, Sample

WORTH = 0.1  # share of the prompt tokens: merging that saves less is not worth its bookkeeping
PIECES = 32  # of chains in a minibatch, at least: neighbouring turns have similar gradients


class Merged:
    """Turns of a chain share a row. chain_of: the number of each turn's chain"""

    def __init__(self, samples: list[Sample], chain_of: Sequence[int]):
        self.samples, self.chain_of = samples, chain_of

    def together(self, turns: Iterable[int]) -> list[list[int]]:
        """Return the turns grouped by row, from old to new. They may be only some of a chain."""
        chains: dict[int, list[int]] = {}
        for turn in sorted(turns):  # old to new: the last prompt holds the others
            chains.setdefault(self.chain_of[turn], []).append(turn)
        return list(chains.values())

    def shuffled(self, turns: Sequence[int], minibatch: int, generator) -> list[int]:
        """Return the turns in random order, where pieces of chains stay together: in a minibatch,
        they share a row."""
        # Neighbouring turns of an episode are alike: whole chains in a minibatch would make its
        # gradient noisy. In short pieces each turn still shares its row with others.
        size = max(1, minibatch // PIECES)
        chains = self.together(turns)
        pieces = [chain[i : i + size] for chain in chains for i in range(0, len(chain), size)]
        order = torch.randperm(len(pieces), generator=generator)
        mixed = [turn for place in order.tolist() for turn in pieces[place]]
        if len(mixed) == len(pieces):  # single turns are in random order already
            return mixed
        # Turns of long pieces would often come early. From a random place on, as on a ring, every
        # turn is at every place with the same probability.
        start = int(torch.randint(len(mixed), (), generator=generator))
        return mixed[start:] + mixed[:start]


def share_saved(samples: list[Sample], layout, minibatches: Sequence) -> float:
    """Return the share of the prompt tokens that a layout saves in these minibatches of turns."""
    turns = [samples[turn] for minibatch in minibatches for turn in minibatch]
    sampled = sum(len(turn.response) for turn in turns)
    rows = [row for minibatch in minibatches for row in layout.together(minibatch)]
    computed = sum(samples[row[-1]].length for row in rows)
    return 1 - (computed - sampled) / sum(len(turn.prompt) for turn in turns)


def merged(samples: list[Sample], n_env: int, worth: float = WORTH):
    """Merge the turns t * n_env + n of a batch if that saves a share `worth` of prompt tokens."""
    rows = Merged(samples, number_chains(samples, n_env))
    turns = [turn for turn, sample in enumerate(samples) if sample.response]
    return rows if share_saved(samples, rows, [turns]) >= worth else OnePerTurn()


def number_chains(samples: list[Sample], n_env: int) -> list[int]:
    """Return the number of each turn's chain, which is that of its first turn t * n_env + n."""
    chain_of = list(range(len(samples)))
    for turn in range(n_env, len(samples)):
        before, prompt = samples[turn - n_env], samples[turn].prompt
        start, end = len(before.prompt), before.length
        # The last token of a response may be another one in the next prompt, see above.
        extends = prompt[start : end - 1] == before.response[:-1]
        # The prompts come last: they are the longest to compare.
        extends = extends and prompt[:start] == before.prompt
        if before.response and end <= len(prompt) and extends:
            chain_of[turn] = chain_of[turn - n_env]
    return chain_of
