"""Critic warm-up (Verlog): the critic first learns what the turns of the frozen actor are worth.

Without it the first updates would follow the advantages of an untrained critic. The turns of
w_epoch batches are collected once. Every fourth environment is held out of the training; it shows
how well the critic explains returns that it never saw.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ppo.losses import explained_variance


def every_fourth(n_env: int, together: int = 1) -> Tensor:
    """Return True where an environment is held out, (N,); together: neighbours share their fate."""
    return torch.arange(n_env) // together % 4 == 3


@dataclass
class WarmUp:
    """`warm_up_critic(agent, batch, estimator)` trains the critic for w_iter rounds.

    A round computes values and returns of all turns with the current critic and then trains on a
    random share w_fraction of the turns (paper: a tenth). The actor is frozen, so the KL to the
    reference is 0 and the rewards are the environment's alone.

    held_out: N -> which environments are kept from the training, (N,)
    """

    w_iter: int
    w_fraction: float
    w_lr: float
    gamma_step: float
    held_out: Callable = every_fourth
    rounds: int = 0  # that are done

    def progress(self) -> float:
        """How far it is, from 0 to 1: values are computed once more after the last round."""
        return self.rounds / (self.w_iter + 1)

    def __call__(self, agent, batch, estimator) -> dict[str, float]:
        """Return the warmup/* metrics."""
        agent.begin_warm_up(self.w_lr)  # the actor's parameters stay as they are, to the bit
        held_out = self.held_out(batch.n_env)  # (N,)
        trained = [row for row in batch.rows if not held_out[row % batch.n_env]]
        count = max(1, round(self.w_fraction * len(trained)))  # a tenth of few turns may be none
        loss = None
        for _ in range(self.w_iter):
            agent.ranks.wait()  # a signal ends the warm-up here, on all ranks
            # The targets are computed anew in each round: they bootstrap from the critic itself.
            batch.score_values(agent.actor_critic)
            batch.compute_returns(estimator)
            loss = agent.fit_critic(batch, agent.shuffled(batch, trained)[:count])
            self.rounds += 1
        # Once more, so that the figures speak of the critic with which the updates begin.
        batch.score_values(agent.actor_critic)
        batch.compute_returns(estimator)
        agent.end_warm_up()
        figures = {"warmup/value_loss": loss, "warmup/turns": len(batch.rows)}
        return figures | _explained(batch, held_out, self.gamma_step)


def _explained(batch, held_out: Tensor, gamma_step: float) -> dict[str, float]:
    """Explained variance of first-token values, for trained and for held-out environments.

    The values are compared with plain returns, discounted by gamma_step whatever the estimator, of
    turns whose episode ended inside the batch, so that no bootstrap value flatters the critic.
    """
    E, N = batch.e_len, batch.n_env
    values, rewards = batch.values[..., 0].cpu(), batch.rewards.sum(-1).cpu()  # (E, N)
    returns, known = torch.zeros(E + 1, N), torch.zeros(E + 1, N, dtype=torch.bool)
    outcomes = batch.episode_ends.clone()  # an episode that was cut off has none
    for t, n in batch.final_prompts:
        outcomes[t, n] = False
    for t in reversed(range(E)):
        ends = batch.episode_ends[t]
        # The return restarts where an episode ends: the next one's rewards are not its own.
        returns[t] = rewards[t] + gamma_step * returns[t + 1].masked_fill(ends, 0.0)
        known[t] = torch.where(ends, outcomes[t], known[t + 1])
    figures = {}
    for name, envs in (("trained", ~held_out), ("held_out", held_out)):
        chosen = known[:-1] & envs & batch.response_mask.any(-1).cpu()  # (E, N)
        if chosen.any():
            explained = explained_variance(values[chosen], returns[:-1][chosen])
            figures[f"warmup/explained_variance_{name}"] = explained
    return figures
