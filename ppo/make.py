"""Which parts of the update a command line asks for: the agent, its objective, KL and warm-up."""

from functools import partial

import torch

from common.ranks import Ranks
from ppo.agent import Agent
from ppo.criticless import CriticlessAgent
from ppo.kl import KLPenalty
from ppo.optimizer import Stepper
from ppo.terms import KLInLoss, make_policy_loss, terms_of
from ppo.warmup import WarmUp, every_fourth

KL_PENALTIES = {"reward": KLPenalty, "loss": KLInLoss}  # --kl-in


def make_agent(args, actor_critic, ranks: Ranks, kl: KLPenalty | None = None) -> Agent:
    """kl: what `make_kl` returns; it may be a term of the loss"""
    generator, stepper = torch.Generator().manual_seed(args.seed), Stepper
    if args.zero_stage:
        from ppo.distributed import ZeroStepper

        stepper = partial(ZeroStepper, stage=args.zero_stage, offload=args.offload_optimizer)
    agent = CriticlessAgent if args.no_critic else Agent
    return agent(
        args, actor_critic, generator, ranks, stepper,
        policy_loss=make_policy_loss(args.tis_cap),
        terms=terms_of(kl),
    )  # fmt: skip


def make_kl(batch) -> KLPenalty:
    """Make the penalty that the flags of the batch describe."""
    estimator = "k3" if batch.kl_in == "loss" else "k1"
    return KL_PENALTIES[batch.kl_in](batch.kl_coef, estimator, batch.kl_target)


def make_warm_up(args) -> WarmUp:
    # Neighbours play the same episodes, so a group is held out as a whole.
    held_out = partial(every_fourth, together=max(1, args.group_size))
    return WarmUp(args.w_iter, args.w_fraction, args.w_lr, args.gamma_step, held_out)
