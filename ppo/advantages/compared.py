"""Which turns of a batch may be compared: episodes with the same start, turns with the same
observation."""

import torch
from torch import Tensor


def groups_of(steps: list[list]) -> Tensor:
    """Return the seed of each turn's episode, (E, N), 0 where a turn is missing.

    An episode that a fault of its environment cut short says little about the policy. It gets a
    negative number of its own, so it is compared with nothing.

    steps: E lists of N Steps, or None where a turn is missing
    """
    E, N = len(steps), len(steps[0])
    groups = torch.zeros(E, N, dtype=torch.long)
    for n, turns in enumerate(zip(*steps, strict=True)):
        # The number is part of the key, because a seed may be drawn twice.
        cut = {(step.episode, step.seed) for step in turns if step and step.fault}
        for t, step in enumerate(turns):
            if step:
                alone = (step.episode, step.seed) in cut
                # Seeds are not negative, so this number is of no other episode.
                groups[t, n] = -1 - n - N * step.episode if alone else step.seed
    return groups


def anchors_of(steps: list[list]) -> Tensor:
    """Return a number for each turn, (E, N), equal where the agent was shown the same observation.

    steps: as above
    """
    # By digest: the texts of a batch may be megabytes, and only their equality counts.
    known: dict[str, int] = {"": 0}  # a missing turn was shown nothing
    digests = [[step.previous_digest if step else "" for step in row] for row in steps]
    numbers = [[known.setdefault(digest, len(known)) for digest in row] for row in digests]
    return torch.tensor(numbers)
