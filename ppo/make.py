"""Which parts of the update a command line asks for: the agent, its objective, KL and warm-up."""

from functools import partial

import torch

from common.ranks import Ranks
from ppo.agent import Agent
from ppo.criticless import CriticlessAgent
from ppo.distributed import make_stepper
from ppo.kl import KLPenalty
from ppo.terms import KLInLoss, make_policy_loss, terms_of
from ppo.warmup import WarmUp, every_fourth

KL_PENALTIES = {"reward": KLPenalty, "loss": KLInLoss}  # --kl-in


def make_agent(args, actor_critic, ranks: Ranks, kl: KLPenalty | None = None) -> Agent:
    """kl: what `make_kl` returns; it may be a term of the loss"""
    agent = CriticlessAgent if args.no_critic else Agent
    return agent(
        args,
        actor_critic,
        torch.Generator().manual_seed(args.seed),
        make_stepper(ranks, args.zero_stage, args.offload_optimizer),
        policy_loss=make_policy_loss(args.tis_cap),
        terms=terms_of(kl),
    )


def make_kl(batch) -> KLPenalty:
    """Make the penalty that the flags of the batch describe."""
    estimator = "k3" if batch.kl_in == "loss" else "k1"
    return KL_PENALTIES[batch.kl_in](batch.kl_coef, estimator, batch.kl_target)


def make_warm_up(args) -> WarmUp:
    # Neighbours play the same episodes, so a group is held out as a whole.
    held_out = partial(every_fourth, together=max(1, args.group_size))
    return WarmUp(args.w_iter, args.w_fraction, args.w_lr, args.gamma_step, held_out)
