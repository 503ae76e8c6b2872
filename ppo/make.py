"""Which parts of the update a command line asks for: the agent, its objective, KL and warm-up."""

from functools import partial

import torch

from common.clip import clip_of
from common.ranks import Ranks
from ppo.agent import Agent
from ppo.criticless import CriticlessAgent
from ppo.distributed import make_stepper
from ppo.episode_ratios import with_episode_ratios
from ppo.kl import KLPenalty
from ppo.known_trunk import QuickWarmUp
from ppo.terms import KLInLoss, make_old_logps, make_policy_loss, terms_of
from ppo.warmup import WarmUp, every_fourth

KL_PENALTIES = {"reward": KLPenalty, "loss": KLInLoss}  # --kl-in


def make_agent(update, actor_critic, ranks: Ranks, seed: int, kl: KLPenalty | None = None) -> Agent:
    """Make the agent that the flags of the update describe.

    seed: of the order of the turns; kl: what `make_kl` returns; it may be a term of the loss
    """
    agent = CriticlessAgent if update.no_critic else Agent
    if clip_of(update.clip).of == "episode":
        agent = with_episode_ratios(agent)
    return agent(
        update,
        actor_critic,
        torch.Generator().manual_seed(seed),
        make_stepper(ranks, update.zero_stage, update.offload_optimizer),
        policy_loss=make_policy_loss(update.clip, update.tis_cap),
        old_logps=make_old_logps(update.clip),
        terms=terms_of(kl),
    )


def make_kl(update) -> KLPenalty:
    """Make the KL penalty that the flags of the update describe."""
    estimator = "k3" if update.kl_in == "loss" else "k1"
    return KL_PENALTIES[update.kl_in](update.kl_coef, estimator, update.kl_target)


def make_warm_up(flags, gamma_step: float, group_size: int) -> WarmUp:
    """Make the critic's warm-up that its flags describe."""
    # Neighbours play the same episodes, so a group is held out as a whole.
    held_out = partial(every_fourth, together=max(1, group_size))
    return QuickWarmUp(flags.w_iter, flags.w_fraction, flags.w_lr, gamma_step, held_out)
