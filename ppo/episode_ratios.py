"""One probability ratio for all turns of an episode (`--clip episode:X`): GSPO with episodes.

With s = exp(mean of log pi - log pi_old over the tokens of the episode that are in the batch) a
token's ratio is s pi / sg(pi), where sg has no gradient (GSPO-token, Zheng et al. 2025, section
4.3). An optimizer step must see an episode's turns at once, so minibatches hold whole episodes, and
a pass without gradients asks first how far each has moved.
"""

from functools import partial

import torch
from torch import Tensor

from ppo.agent import Agent
from ppo.losses import sampled_logps


def with_episode_ratios(agent: type[Agent]) -> type[Agent]:
    """Return the kind of agent that takes its ratios over episodes."""
    return type(f"{agent.__name__}OverEpisodes", (_OverEpisodes, agent), {})


class _OverEpisodes:
    """What replaces parts of an `Agent`; its critic's warm-up keeps minibatches of single turns."""

    def plan(self, batch) -> list[list[list[int]]]:
        return [self._whole_episodes(batch) for _ in range(self.settings.ppo_epoch)]

    def _whole_episodes(self, batch) -> list[list[int]]:
        """Return the episodes in random order, in minibatches of about `minibatch` turns."""
        episodes: dict[int, list[int]] = {}
        numbers = number_episodes(batch.episode_ends).tolist()
        for row in sorted(batch.rows):
            episodes.setdefault(numbers[row], []).append(row)
        whole, chunks = [*episodes.values()], [[]]
        for place in torch.randperm(len(whole), generator=self.generator).tolist():
            if len(chunks[-1]) >= self.settings.minibatch:
                chunks.append([])
            chunks[-1] += whole[place]
        if len(chunks) > 1 and len(chunks[-1]) < self.settings.minibatch / 2:
            rest = chunks.pop()  # a few turns would make a step as long as the others
            chunks[-1] += rest
        return chunks

    def _minibatch(self, batch, advantages: Tensor, rows: list[int]):
        self.old_logps = partial(episode_logps, moved=self._moved(batch, rows))
        return super()._minibatch(batch, advantages, rows)

    @torch.no_grad()
    def _moved(self, batch, rows: list[int]) -> Tensor:
        """Return for each row of the batch the mean log ratio of its episode's tokens in `rows`."""
        numbers = number_episodes(batch.episode_ends).to(batch.device)
        sums = torch.zeros(2, len(numbers), device=batch.device)  # of log ratios, and of tokens
        for micro in batch.micro_batches(rows):
            logps = self.stepper.model(micro).logps
            lengths = batch.masks(micro.rows).sum(-1)
            of_token = numbers[micro.rows].repeat_interleave(lengths)
            gap = logps - sampled_logps(batch, micro, logps)
            sums.index_add_(1, of_token, torch.stack([gap, torch.ones_like(gap)]))
        total, tokens = self.ranks.sum(sums)  # turns of an episode may be on several ranks
        return (total / tokens.clamp(min=1))[numbers]


def number_episodes(episode_ends: Tensor) -> Tensor:
    """Return a number for each row t * N + n of a batch, equal within an episode.

    episode_ends: (E, N), whether an episode ends with a turn. Numbers are below E * N
    """
    ended = episode_ends.long().cumsum(0) - episode_ends.long()  # episodes that ended before
    return (ended * episode_ends.shape[1] + torch.arange(episode_ends.shape[1])).flatten()


def episode_logps(batch, micro_batch, logps: Tensor, moved: Tensor) -> Tensor:
    """Return old log-probs (R,) that give each token the ratio of its episode.

    moved: for each row of the batch, the mean log ratio of its episode
    """
    lengths = batch.masks(micro_batch.rows).sum(-1)
    return logps.detach() - moved[micro_batch.rows].repeat_interleave(lengths)
