"""A warm-up that knows its trunk: the critic of the plain one to the bit, and each turn once."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from conftest import fill_batch, make_lm, make_settings
from torch.testing import assert_close

from ppo import known_trunk
from ppo.advantages import make_estimator
from ppo.agent import Agent
from ppo.known_trunk import QuickWarmUp
from ppo.model.actor_critic import ActorCritic
from ppo.model.make import build
from ppo.warmup import WarmUp

DISCOUNTS = dict(gamma_step=0.9, lam_step=0.95, gamma_token=1.0, lam_token=1.0)
ESTIMATOR = make_estimator(SimpleNamespace(advantages="dual-gae", **DISCOUNTS))
ROUNDS, TURNS = 3, 4 * 8


def warmed_up(warm_up: type, **options):
    """Return the actor-critic after a warm-up, its figures, and how many rows its trunk had."""
    actor_critic = build(make_lm(std=0.1), 1, **options)
    settings = make_settings(lr=0.1, critic_lr=0.2, minibatch=16)
    agent = Agent(settings, actor_critic, torch.Generator().manual_seed(0))
    rows, trunk = [], ActorCritic._trunk

    def counted(self, batch):
        rows.append(len(batch.rows))
        return trunk(self, batch)

    with patch.object(ActorCritic, "_trunk", counted):
        figures = warm_up(ROUNDS, 0.5, 0.01, 0.9)(agent, fill_batch(E=4, N=8), ESTIMATOR)
    assert "_trunk" not in vars(actor_critic)
    return actor_critic, figures, sum(rows)


@pytest.mark.parametrize("options", [{}, dict(packed=True), dict(lora_rank=2)])
def test_the_critic_is_that_of_the_plain_warm_up_to_the_bit(options):
    plain, figures, rows = warmed_up(WarmUp, **options)
    quick, quick_figures, quick_rows = warmed_up(QuickWarmUp, **options)
    assert_close(quick.state_dict(), plain.state_dict(), rtol=0, atol=0)
    assert quick_figures == figures
    # The plain one scores all turns ROUNDS + 1 times and the 8 next prompts, too; rounds train on
    # half of the 24 turns that are not held out. The quick one scores each once.
    fitted = ROUNDS * 12
    assert rows == (ROUNDS + 1) * (TURNS + 8) + fitted
    assert quick_rows == TURNS + 8 + fitted


def test_turns_beyond_the_free_memory_are_computed_in_every_round(monkeypatch):
    monkeypatch.setattr(known_trunk, "free_bytes", lambda: 0)
    assert warmed_up(QuickWarmUp)[2] == warmed_up(WarmUp)[2]
