"""Critic warm-up: before the first PPO update the critic learns what the frozen actor's turns are
worth (Verlog, "critic warm-up": w_epoch batches are collected once, then come w_iter rounds on
them). Without it the first updates would follow the advantages of a critic that knows nothing.

One storage of w_epoch * e_len turns per environment holds all batches. Every fourth environment is
held out of the training, and shows how well the critic explains returns that it never saw.
"""

from collections.abc import Callable
from functools import partial

import torch

from ppo.losses import explained_variance


def make_warm_up(args) -> Callable:
    """Return `warm_up_critic(agent, rollouts, estimator)` with the settings of the command line."""
    return partial(
        warm_up_critic,
        w_iter=args.w_iter,
        w_fraction=args.w_fraction,
        w_lr=args.w_lr,
        gamma_step=args.gamma_step,
        use_proper_time_limits=args.use_proper_time_limits,
    )


def warm_up_critic(
    agent,
    rollouts,
    estimator,
    w_iter: int,
    w_fraction: float,
    w_lr: float,
    gamma_step: float,
    use_proper_time_limits: bool,
) -> dict[str, float]:
    """Train the critic for w_iter rounds; returns the warmup/* metrics.

    A round computes values and returns of all turns with the current critic and then trains on a
    random share w_fraction of the turns (paper: a tenth). The actor is frozen, so the KL to the
    reference is 0 and the rewards are the environment's alone.
    """
    agent.begin_warm_up(w_lr)
    N = rollouts.n_env
    held_out = set(range(3, N, 4))
    rows = [row for row in range(rollouts.e_len * N) if row % N not in held_out]
    loss = None
    for _ in range(w_iter):
        # The targets are computed anew in each round: they bootstrap from the critic itself.
        rollouts.score_values(agent.actor_critic)
        rollouts.compute_returns(estimator, use_proper_time_limits)
        order = torch.randperm(len(rows), generator=agent.generator)
        chosen = order[: max(1, round(w_fraction * len(rows)))]
        loss = agent.fit_critic(rollouts, [rows[i] for i in chosen])
    rollouts.score_values(agent.actor_critic)
    rollouts.compute_returns(estimator, use_proper_time_limits)
    agent.end_warm_up()
    return {"warmup/value_loss": loss, "warmup/turns": rollouts.e_len * N} | {
        f"warmup/explained_variance_{name}": value
        for name, value in _explained(rollouts, sorted(held_out), gamma_step).items()
    }


def _explained(rollouts, held_out: list[int], gamma_step: float) -> dict[str, float]:
    """Explained variance of first-token values, for trained and for held-out environments.

    The values are compared with plain discounted returns (lambda = 1) of turns whose episode ended
    inside the batch, so that no bootstrap value flatters the critic.
    """
    returns = torch.zeros(rollouts.e_len + 1, rollouts.n_env)
    known = torch.zeros(rollouts.e_len + 1, rollouts.n_env, dtype=torch.bool)
    rewards = rollouts.rewards.sum(-1).cpu()  # (E, N)
    for t in reversed(range(rollouts.e_len)):
        ends = rollouts.episode_ends[t].cpu()
        returns[t] = rewards[t] + gamma_step * returns[t + 1].masked_fill(ends, 0.0)
        known[t] = torch.where(ends, ~rollouts.cut[t], known[t + 1])
    values, returns, known = rollouts.values[..., 0].cpu(), returns[:-1], known[:-1]
    trained = [n for n in range(rollouts.n_env) if n not in held_out]
    explained = {}
    for name, envs in (("trained", trained), ("held_out", held_out)):
        chosen = known[:, envs]
        if chosen.any():
            explained[name] = explained_variance(values[:, envs][chosen], returns[:, envs][chosen])
    return explained
