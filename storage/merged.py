"""Merged turns: turns that extend one another are computed in one row of the model, exactly.

Where a memory only appends, a prompt begins with the last prompt and its response:

    turn 1   prompt 1, response 1
    turn 2   prompt 1, response 1, observation 2, response 2
    turn 3   prompt 1, response 1, observation 2, response 2, observation 3, response 3

In rows of their own, T such turns cost O(T^2) tokens. But attention is causal: what the model says
of a token depends on the tokens before it and on nothing else, and before each response the last
row holds the same tokens as the response's own row. So this one row, with a span of the response
mask for each turn, gives log-probs, values and gradients of all turns, for O(T) tokens.

The last token of a response may be another one in the next prompt, because nothing of its own turn
comes after it: what ends a turn is sampled as one token, and templates may write it as another. So
micro-batches hold the sampled tokens beside the ids of their rows.

Turns that share a row are called a chain. A chain ends where a prompt does not continue the last
one: at the end of an episode, or where the memory dropped or rewrote something. What is computed
per turn (advantages, denominators, minibatches of so many turns) knows nothing of chains.
"""

from collections.abc import Iterable

WORTH = 0.1  # of the prompt tokens: merging that saves less is left out by --merge-turns auto


def number_chains(prompts: list, responses: list, n_env: int) -> list[int]:
    """Return the number of each turn's chain, which is that of its first turn t * n_env + n.

    prompts, responses: ids of all turns, in lists
    """
    chain_of = list(range(len(prompts)))
    for row in range(n_env, len(prompts)):
        before, said = prompts[row - n_env], responses[row - n_env]
        at, end = len(before), len(before) + len(said)
        extends = prompts[row][at : end - 1] == said[:-1] and prompts[row][:at] == before
        if said and end <= len(prompts[row]) and extends:
            chain_of[row] = chain_of[row - n_env]
    return chain_of


def in_chains(rows: Iterable[int], chain_of: list[int]) -> list[list[int]]:
    """Put turns of a chain together, from old to new. `rows` may be only some of its turns."""
    chains: dict[int, list[int]] = {}
    for row in sorted(rows):
        chains.setdefault(chain_of[row], []).append(row)
    return list(chains.values())


def share_saved(
    prompts: list, responses: list, minibatches: Iterable, chain_of: list[int]
) -> float:
    """Return the share of the prompt tokens that merging saves in these lists of turns."""
    minibatches = list(minibatches)
    asked = sum(len(prompts[row]) for rows in minibatches for row in rows)
    said = sum(len(responses[row]) for rows in minibatches for row in rows)
    last = [chain[-1] for rows in minibatches for chain in in_chains(rows, chain_of)]
    computed = sum(len(prompts[row]) + len(responses[row]) for row in last)
    return 1 - (computed - said) / asked
