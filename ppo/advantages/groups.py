"""Estimators without a critic: an episode is compared with others that began from the same seed.

R_e is the undiscounted sum of the rewards of episode e. Each function returns the advantages alone,
which are the same for all tokens of a turn. An episode that is alone in its group has nothing to be
compared with and gets 0. All need whole episodes (--group-size): the episodes that happen to end
inside a batch of fixed length are the short ones.
"""

import torch
from torch import Tensor

from ppo.advantages import Batch
from ppo.advantages.compared import anchors_of, groups_of

EPS = 1e-4  # far above the rounding error of equal returns, whose advantages are 0
OMEGA = 1.0  # weight of GiGPO's comparison of turns


def rloo(batch: Batch) -> Tensor:
    """REINFORCE leave-one-out (Ahmadian et al. 2024): R_e minus the mean of the G - 1 others,

    A_e = G / (G - 1) (R_e - mean of the group's R)
    """
    episodes = Episodes(batch)
    count = episodes.count
    centred = episodes.returns - episodes.mean()
    # clamp: an episode that is alone is centred to 0, and 0 / 0 would be nan.
    return batch.spread(episodes.of_turns(centred * count / (count - 1).clamp(min=1)))


def grpo(batch: Batch) -> Tensor:
    """GRPO (Shao et al. 2024): A_e = (R_e - mean of the group's R) / (their standard deviation +
    eps). An episode counts once in both, however many turns it has."""
    episodes = Episodes(batch)
    centred = episodes.returns - episodes.mean()
    squares = episodes.sums(centred.square())
    deviation = (squares / (episodes.count - 1).clamp(min=1)).sqrt()  # of a sample
    return batch.spread(episodes.of_turns(centred / (deviation + EPS)))


def gigpo(batch: Batch) -> Tensor:
    """GiGPO (Feng et al. 2025) with F_norm = 1: episodes are compared, and so are the turns of a
    group that were shown the identical observation,

        A_t = R_e - mean of the group's R + omega (G_t - mean of these turns' G)

    G_t is the sum of gamma^k r_{t+k} to the episode's end. A turn whose observation is alone gets
    its episode's part only.
    """
    episodes = Episodes(batch)
    returns, turns = discounted_returns(batch), batch.turn_mask
    anchors = anchors_of(batch.steps).to(turns.device)
    # Only inside a group: the same observation after another start may be another state.
    pairs = torch.stack([episodes.seeds[turns], anchors[turns]])  # (2, turns)
    _, same = pairs.unique(dim=1, return_inverse=True)
    compared = torch.zeros_like(returns)
    # Where a turn is alone the mean is its own G, so its difference is 0.
    compared[turns] = returns[turns] - group_sums(returns[turns], same) / group_sums(
        torch.ones_like(returns[turns]), same
    )
    # One that is alone would only be compared with itself, where an observation comes again.
    compared[episodes.of_turns(episodes.count) == 1] = 0.0
    # Divided by the deviation, groups that nearly always win or fail would count most.
    centred = episodes.returns - episodes.mean()
    return batch.spread(episodes.of_turns(centred) + OMEGA * compared)


class Episodes:
    """The K episodes of a batch, in fp64, so that rounding makes equal returns differ by much less
    than EPS.

    at: (E, N), the episode of each turn
    seeds: (E, N), what `groups_of` returns
    returns: (K,)
    group: (K,), from 0
    count: (K,), episodes of the group
    """

    def __init__(self, batch: Batch):
        self.turns = batch.turn_mask
        begins = torch.ones_like(self.turns)
        begins[1:] = batch.episode_ends[:-1].bool()
        begins &= self.turns  # missing turns follow an end, too, but begin nothing
        # Numbered environment by environment, so that the turns of an episode follow each other.
        self.at = begins.T.flatten().cumsum(0).view(begins.T.shape).T - 1
        at, K = self.at[self.turns], int(begins.sum())
        rewards = batch.turn_rewards[self.turns].double()
        self.returns = rewards.new_zeros(K).index_add_(0, at, rewards)
        self.seeds = groups_of(batch.steps).to(at.device)
        groups = self.seeds.new_zeros(K).index_put_((at,), self.seeds[self.turns])
        _, self.group = groups.unique(return_inverse=True)
        self.count = self.sums(torch.ones_like(self.returns))

    def sums(self, numbers: Tensor) -> Tensor:
        """The sum over each episode's group, (K,) -> (K,)."""
        return group_sums(numbers, self.group)

    def mean(self) -> Tensor:
        return self.sums(self.returns) / self.count

    def of_turns(self, numbers: Tensor) -> Tensor:
        """Give every turn the number of its episode, (K,) -> (E, N), 0 where it is missing."""
        return torch.where(self.turns, numbers[self.at], 0.0)  # `at` numbers missing turns, too


def discounted_returns(batch: Batch) -> Tensor:
    """G_t = r_t + gamma_step G_{t+1} up to the end of each episode, (E, N), in fp64."""
    returns = batch.turn_rewards.double()
    for t in reversed(range(len(returns) - 1)):
        later = returns[t + 1].masked_fill(batch.episode_ends[t].bool(), 0.0)  # not of the next one
        returns[t] += batch.gamma_step * later
    return returns


def group_sums(numbers: Tensor, group: Tensor) -> Tensor:
    """Sum the numbers (K,) of each group and give every member the sum. group: (K,), from 0"""
    return numbers.new_zeros(len(numbers)).index_add_(0, group, numbers)[group]
