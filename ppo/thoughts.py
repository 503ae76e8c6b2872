"""Does a thought depend on its prompt? A template that ignores the state shows before success does.

The thoughts of K turns of an evaluation, of different episodes, are scored under each other's
prompts. With L_ij the log-probability of thought i under prompt j,

    I = mean over i of (L_ii - log mean over j of exp L_ij)

estimates the mutual information of thoughts and prompts in nats, from below and never above log K
(InfoNCE with exact likelihoods: van den Oord et al. 2018, Poole et al. 2019).
"""

import math

import torch

from ppo.engines.text import action_token
from storage.batch import Scoring
from storage.collection import Turn
from storage.minibatch import Sample, micro_batches

K = 12  # turns that are compared: their K x K scores cost as much as K x K turns of an update
FEWEST = 4  # thoughts that can be compared
LATEST = 8  # of a turn that is taken


class Thoughts:
    """Keeps one turn of each of the first K evaluation episodes: the first, the second, ..., the
    eighth, again the first; of an episode that ends before, its last one.

    seeds: of the episodes
    """

    def __init__(self, seeds: range):
        self.wanted = {seed: 1 + k % LATEST for k, seed in enumerate(seeds[:K])}
        self.turns: dict[int, Turn] = {}  # seed -> its turn

    def insert(self, turn: Turn) -> None:
        step = turn.step
        if turn.response and step.number <= self.wanted.get(step.seed, 0):
            self.turns[step.seed] = turn

    def join(self, ranks) -> None:
        """Bring the turns of all ranks together, in the order of their seeds."""
        self.turns = dict(sorted(ranks.gather([*self.turns.items()])))

    def samples(self) -> list[Sample]:
        """Return the prompts and the thoughts, which are the responses up to the action."""
        found = []
        for response, step in self.turns.values():
            length = action_token(response.pieces, response.text, step.action_at)
            if length:
                heat = response.temperature or 1.0  # greedy thoughts are scored at 1
                found.append(Sample(response.prompt.ids, response.ids[:length], heat))
        return found


def thought_information(thoughts: Thoughts, actor_critic, scoring: Scoring) -> dict:
    """Return eval/thought_information: I / log K, from 0 (or a little below) to 1.

    1: each thought tells its prompt from the K - 1 others; 0: it says nothing about it. None: there
    are fewer than FEWEST thoughts.
    """
    samples = thoughts.samples()
    known = information(scores(samples, actor_critic, scoring)) if len(samples) >= FEWEST else None
    return {"eval/thought_information": known}


@torch.no_grad()
def scores(samples: list[Sample], actor_critic, scoring: Scoring) -> torch.Tensor:
    """Return L (K, K) on the CPU: the log-probability of response i after prompt j."""
    crossed = [
        Sample(other.prompt, one.response, one.temperature) for one in samples for other in samples
    ]
    summed = torch.zeros(len(crossed), dtype=torch.float64)
    rows, ranks = [[row] for row in range(len(crossed))], scoring.ranks
    for micro in micro_batches(crossed, rows, scoring.token_budget, ranks.device, ranks):
        lengths = [len(crossed[row].response) for row in micro.rows.tolist()]
        parts = actor_critic(micro).logps.double().cpu().split(lengths)
        summed[micro.rows.cpu()] = torch.stack([part.sum() for part in parts])
    ranks.sum(summed)  # each rank has computed its share of the rows
    return summed.view(len(samples), len(samples))


def information(logps: torch.Tensor) -> float:
    """Return I / log K of scores (K, K)."""
    most = math.log(len(logps))
    told = logps.diagonal() - (logps.logsumexp(-1) - most)
    return (told.mean() / most).item()
