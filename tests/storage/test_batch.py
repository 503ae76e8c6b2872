"""Batch by hand: where scores, rewards and bootstrap values land. Values are those of
`made_turns.Stub`: V before a token is the id of the token before it / 10.
"""

from types import SimpleNamespace

import pytest
import torch
from conftest import batch as micro_batch
from conftest import fill_batch, make_collection, make_prompt
from made_turns import Stub, answer, play, scored, two_by_two
from torch.testing import assert_close

from ppo.advantages import make_estimator
from ppo.kl import KLPenalty
from ppo.model.actor_critic import Reference
from ppo.model.make import build
from storage.collection import at_faults
from storage.schedules import at_time_limits

DISCOUNTS = dict(gamma_step=0.9, lam_step=0.5, gamma_token=1.0, lam_token=1.0)
ESTIMATOR = make_estimator(SimpleNamespace(advantages="dual-gae", **DISCOUNTS))


# ---- scoring --------------------------------------------------------------------------------


def test_tokens_land_at_their_place():
    batch = scored()  # (E, N, T) = (2, 2, 3)
    mask = [[[1, 1, 1], [1, 0, 0]], [[1, 0, 0], [1, 1, 0]]]
    assert batch.response_mask.int().tolist() == mask
    # log pi of tokens 5 6 7, 5, 8, 3 4
    logps = [[[-0.05, -0.06, -0.07], [-0.05, 0, 0]], [[-0.08, 0, 0], [-0.03, -0.04, 0]]]
    assert_close(batch.logps, torch.tensor(logps))
    assert_close(batch.ref_logps, torch.tensor(logps) / 2)
    # V before them: the tokens before are 2 5 6, 9, 3, 2 3
    values = [[[0.2, 0.5, 0.6], [0.9, 0, 0]], [[0.3, 0, 0], [0.2, 0.3, 0]]]
    assert_close(batch.values, torch.tensor(values))


def test_the_reward_is_on_the_last_response_token():
    rewards = [[[0, 0, 0.5], [0, 0, 0]], [[1.0, 0, 0], [0, 0.25, 0]]]
    assert_close(scored().rewards, torch.tensor(rewards))


def test_score_values_fills_values_alone():
    batch = two_by_two().join()
    batch.score_values(Stub())
    assert_close(batch.values, scored().values)
    assert_close(batch.bootstrap, torch.tensor([0.4, 0.8]))
    assert (batch.logps == batch.ref_logps).all()  # KL 0
    assert_close(batch.rewards, scored().rewards)


@pytest.mark.parametrize("token_budget", [1, 40, 10**6])
def test_scores_equal_the_model_on_each_row_alone(lm, token_budget):
    actor_critic, reference = build(lm, 1), Reference(lm)
    torch.nn.init.normal_(actor_critic.head.weight)
    batch = fill_batch(token_budget=token_budget, temperature=0.8)
    batch.score(actor_critic, reference, [batch.rows])
    for t in range(batch.e_len):
        for n in range(batch.n_env):
            response = batch.responses[t][n]
            alone = actor_critic(micro_batch((response.prompt.ids, response.ids), temperature=0.8))
            width = len(response.ids)
            assert_close(batch.logps[t, n, :width], alone.logps, atol=2e-5, rtol=0)
            assert_close(batch.values[t, n, :width], alone.values, atol=2e-5, rtol=0)
            assert_close(batch.ref_logps[t, n, :width], alone.logps, atol=2e-5, rtol=0)


def test_the_bootstrap_is_the_value_of_the_first_token_of_any_response(lm):
    actor_critic = build(lm, 1)
    torch.nn.init.normal_(actor_critic.head.weight)
    batch = fill_batch()
    batch.final_prompts[2, 1] = make_prompt([9, 8, 7])
    batch.score(actor_critic, Reference(lm), [batch.rows])
    for prompt, value in [
        *zip(batch.next_prompts, batch.bootstrap, strict=True),
        (make_prompt([9, 8, 7]), torch.tensor(batch.final_values[2, 1])),
    ]:
        scores = actor_critic(micro_batch((prompt.ids, [55, 66])))
        assert_close(value, scores.values[0], atol=2e-5, rtol=0)


# ---- returns --------------------------------------------------------------------------------


def test_next_values_where_a_time_limit_is_a_failure():
    batch = scored()
    batch.compute_returns(ESTIMATOR)
    # turn 0: environment 0 goes on to prompt [1, 3] -> .3, environment 1 met its limit -> 0
    # turn 1: environment 0 terminated -> 0, environment 1 is cut at prompt [1, 2, 8] -> .8
    assert_close(batch.next_values(), torch.tensor([[0.3, 0.0], [0.0, 0.8]]))
    assert batch.episode_ends.tolist() == [[False, True], [True, False]]


def test_an_environments_fault_is_bootstrapped_and_not_a_failure():
    batch = scored(two_by_two(fault="it raised"))  # V of [1, 1, 6], as with proper limits
    batch.compute_returns(ESTIMATOR)
    assert_close(batch.next_values(), torch.tensor([[0.3, 0.6], [0.0, 0.8]]))


def test_next_values_with_proper_time_limits():
    batch = scored(two_by_two(needs_bootstrap=at_time_limits))
    batch.compute_returns(ESTIMATOR)
    # the final observation of environment 1 has the prompt [1, 1, 6] -> .6; the next episode's
    # first, [2, 2], would be .2
    assert_close(batch.next_values(), torch.tensor([[0.3, 0.6], [0.0, 0.8]]))
    assert batch.episode_ends.tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    ("terminated", "proper", "expected"),
    [
        (False, True, 0.6),  # V of the final observation, not .4 of the next episode's first
        (False, False, 0.0),
        (True, True, 0.0),  # the goal was reached with the last turn that the limit allows
        (True, False, 0.0),
    ],
)
def test_a_time_limit_in_the_last_turn_of_the_batch(terminated, proper, expected):
    rollouts = make_collection(1, 1, needs_bootstrap=at_time_limits if proper else at_faults)
    play(rollouts, 0, answer([1], [2]), terminated=terminated, truncated=True, limit=[6])
    rollouts.finish(0, make_prompt([4]))
    batch = scored(rollouts)
    batch.compute_returns(ESTIMATOR)
    assert_close(batch.next_values(), torch.tensor([[expected]]))
    assert batch.episode_ends.all()


@pytest.mark.parametrize(("proper", "at_limit"), [(False, 0.0), (True, 0.54)])
def test_returns_by_hand(proper, at_limit):
    rule = at_time_limits if proper else at_faults
    batch = scored(two_by_two(needs_bootstrap=rule))
    batch.compute_returns(ESTIMATOR)
    # G = r + .9 (.5 V_next + .5 G_next), the same for all tokens of a turn; A = G - V
    # environment 0, turn 1: terminated                  1
    #                turn 0: .5 + .9 (.5 * .3 + .5 * 1)  = 1.085
    # environment 1, turn 1: .25 + .9 * .8               = .97    at the cut G_next = V_next
    #                turn 0: 0, or at a proper limit .9 * .6 = .54
    returns = [[[1.085] * 3, [at_limit, 0, 0]], [[1.0, 0, 0], [0.97, 0.97, 0]]]
    returns = torch.tensor(returns)
    assert_close(batch.returns, returns)
    assert_close(batch.advantages, returns - batch.values)


def test_the_kl_penalty_by_hand():
    # k1 = -i / 200 for tokens 5 6 7, 5, 8, 3 4; beta = .1 adds .0005 i
    batch = scored()
    batch.penalise_kl(KLPenalty(0.1, "k1", target=None))
    rewards = [
        [[0.0025, 0.003, 0.5035], [0.0025, 0, 0]],
        [[1.004, 0, 0], [0.0015, 0.252, 0]],
    ]
    assert_close(batch.rewards, torch.tensor(rewards))
