"""Critic warm-up (Verlog): the critic first learns what the turns of the frozen actor are worth.

Without it the first updates would follow the advantages of a critic that knows nothing. w_epoch
batches are collected once, into one storage. Every fourth environment is held out of the training,
and shows how well the critic explains returns that it never saw.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ppo.losses import explained_variance


def make_warm_up(args) -> "WarmUp":
    return WarmUp(args.w_iter, args.w_fraction, args.w_lr, args.gamma_step)


@dataclass
class WarmUp:
    """`warm_up_critic(agent, rollouts, estimator, stop)` trains the critic for w_iter rounds.

    A round computes values and returns of all turns with the current critic and then trains on a
    random share w_fraction of the turns (paper: a tenth). The actor is frozen, so the KL to the
    reference is 0 and the rewards are the environment's alone.
    """

    w_iter: int
    w_fraction: float
    w_lr: float
    gamma_step: float
    rounds: int = 0  # that are done

    def progress(self) -> float:
        """How far it is, from 0 to 1: values are computed once more after the last round."""
        return self.rounds / (self.w_iter + 1)

    def __call__(self, agent, rollouts, estimator, stop) -> dict[str, float]:
        """Return the warmup/* metrics."""
        agent.begin_warm_up(self.w_lr)
        # Environments of a group play the same episodes: they are held out together.
        held_out = torch.arange(rollouts.n_env) // max(1, rollouts.group_size) % 4 == 3  # (N,)
        loss = None
        for _ in range(self.w_iter):
            if stop.now():  # in the first round `rollouts` may not even be complete
                return {}
            # The targets are computed anew in each round: they bootstrap from the critic itself.
            rollouts.score_values(agent.actor_critic)
            rollouts.compute_returns(estimator)
            # a chain of turns is of one environment
            chains = [c for c in rollouts.chains() if not held_out[c[0] % rollouts.n_env]]
            rows = agent.mixed(chains)
            loss = agent.fit_critic(rollouts, rows[: max(1, round(self.w_fraction * len(rows)))])
            self.rounds += 1
        rollouts.score_values(agent.actor_critic)
        rollouts.compute_returns(estimator)
        agent.end_warm_up()
        figures = {"warmup/value_loss": loss, "warmup/turns": len(rollouts.rows)}
        return figures | _explained(rollouts, held_out, self.gamma_step)


def _explained(rollouts, held_out: Tensor, gamma_step: float) -> dict[str, float]:
    """Explained variance of first-token values, for trained and for held-out environments.

    The values are compared with plain returns, discounted by gamma_step whatever the estimator, of
    turns whose episode ended inside the batch, so that no bootstrap value flatters the critic.
    """
    E, N = rollouts.e_len, rollouts.n_env
    values, rewards = rollouts.values[..., 0].cpu(), rollouts.rewards.sum(-1).cpu()  # (E, N)
    returns, known = torch.zeros(E + 1, N), torch.zeros(E + 1, N, dtype=torch.bool)
    for t in reversed(range(E)):
        ends = rollouts.episode_ends[t]
        returns[t] = rewards[t] + gamma_step * returns[t + 1].masked_fill(ends, 0.0)
        known[t] = torch.where(ends, ~rollouts.cut[t], known[t + 1])
    figures = {}
    for name, envs in (("trained", ~held_out), ("held_out", held_out)):
        chosen = known[:-1] & envs & rollouts.response_mask.any(-1).cpu()  # (E, N)
        if chosen.any():
            explained = explained_variance(values[chosen], returns[:-1][chosen])
            figures[f"warmup/explained_variance_{name}"] = explained
    return figures
