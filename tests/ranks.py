"""Trains on fixed turns and saves the parameters; test_distributed.py runs it in several processes.

torchrun --nproc-per-node 2 tests/ranks.py OUT.pt 0 1 2 3 2+offload      (ZeRO stages)
"""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
warnings.simplefilter("ignore", FutureWarning)

import torch  # noqa: E402
from conftest import fill_batch, make_lm, make_settings  # noqa: E402

import ppo.model.decoder  # noqa: E402
from common.ranks import ALONE, Ranks  # noqa: E402
from ppo.advantages import make_estimator  # noqa: E402
from ppo.agent import Agent  # noqa: E402
from ppo.distributed import LaunchedRanks, make_stepper, shard  # noqa: E402
from ppo.kl import KLPenalty  # noqa: E402
from ppo.model.actor_critic import Reference  # noqa: E402
from ppo.model.lora import AdaptersOff  # noqa: E402
from ppo.model.make import build  # noqa: E402
from ppo.warmup import WarmUp  # noqa: E402
from run.figures import batch_figures, update_figures  # noqa: E402

WARM_UP = dict(w_iter=2, w_fraction=0.5, w_lr=1e-3, gamma_step=0.9)
DISCOUNTS = dict(gamma_step=0.99, lam_step=0.95, gamma_token=0.99, lam_token=0.9)


def train(stage: str, ranks: Ranks = ALONE, updates: int = 2):
    """Do a warm-up and updates on fixed turns. Return the parameters and the metrics."""
    lm = make_lm(std=0.1, tie="+untied" not in stage).to(ranks.device)
    rank, recompute = 2 * ("+lora" in stage), "+recompute" in stage
    # recomputing, the log-probs of two tokens at a time as well
    ppo.model.decoder.LOGITS_PER_CHUNK = 2 * lm.config.vocab_size if recompute else 2**25
    actor_critic = build(lm, 1, recompute=recompute, lora_rank=rank).to(ranks.device)
    reference = AdaptersOff(actor_critic) if rank else Reference(lm)
    settings = make_settings(
        critic_lr=2e-3, value_clip=0.5, entropy_coef=0.01, max_grad_norm=0.5, minibatch=5
    )
    stepper = make_stepper(ranks, int(stage[0]), offload=stage.endswith("+offload"))
    agent = Agent(settings, actor_critic, torch.Generator().manual_seed(0), stepper)
    if stage.endswith("+sharded"):
        shard(reference)
    estimator, kl = (
        make_estimator(SimpleNamespace(advantages="dual-gae", **DISCOUNTS)),
        KLPenalty(0.1, "k1", None),
    )
    # minibatches of 5 turns in micro-batches of about two: ranks have unequally many
    rollouts = fill_batch(E=5, N=4, token_budget=30, ranks=ranks)
    metrics = [WarmUp(**WARM_UP)(agent, rollouts, estimator)]
    for seed in range(updates):
        made = dict(extends="+merged" in stage, ranks=ranks)
        rollouts = fill_batch(E=5, N=4, seed=seed, token_budget=30, **made)
        plan = agent.plan(rollouts)
        rollouts.score(actor_critic, reference, plan[0])
        rollouts.penalise_kl(kl)
        rollouts.compute_returns(estimator)
        made = agent.update(rollouts, plan) | update_figures(rollouts, plan)
        metrics.append(batch_figures(rollouts) | made)
    return parameters(actor_critic), metrics


def parameters(actor_critic) -> dict[str, torch.Tensor]:
    found = {}
    for name, p in actor_critic.named_parameters():
        with actor_critic.whole([p]):
            found[name] = p.detach().clone()
    return found


if __name__ == "__main__":
    ranks = LaunchedRanks()
    results = {stage: train(stage, ranks) for stage in sys.argv[2:]}
    if ranks.rank == 0:
        torch.save(results, sys.argv[1])
