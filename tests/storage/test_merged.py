"""Merged turns: which turns share a row, and that nothing but the work depends on it."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from conftest import fill_batch, make_lm, make_settings
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from ppo.advantages import make_estimator, whiten
from ppo.agent import Agent
from ppo.model.actor_critic import Reference
from ppo.model.lora import AdaptersOff
from ppo.model.make import build
from ppo.terms import KLInLoss
from storage.make import LAYOUTS
from storage.merged import Merged, merged, number_chains, share_saved
from storage.minibatch import Sample, micro_batches, one_per_turn

# Two environments, three turns. The first one's turns extend each other; in its last prompt another
# token ends the second response. The second one's last prompt ends with the prompt before.
PROMPTS = [[1, 2], [5], [1, 2, 3, 9], [5, 6, 8], [1, 2, 3, 9, 4, 4, 7], [5, 6, 8]]
RESPONSES = [[3], [6], [4, 5], [7], [8], [9]]
SAMPLES = [Sample(p, r) for p, r in zip(PROMPTS, RESPONSES, strict=True)]
ROWS = Merged(SAMPLES, [0, 1, 0, 1, 0, 5])
DISCOUNTS = dict(gamma_step=0.99, lam_step=0.95, gamma_token=0.9, lam_token=0.8)
ESTIMATOR = make_estimator(SimpleNamespace(advantages="dual-gae", **DISCOUNTS))


def test_turns_that_extend_one_another_share_a_row():
    assert number_chains(SAMPLES, n_env=2) == [0, 1, 0, 1, 0, 5]
    assert ROWS.together(range(6)) == [[0, 2, 4], [1, 3], [5]]
    (batch,) = micro_batches(SAMPLES, ROWS.together(range(6)), 100)
    assert batch.rows.tolist() == [1, 3, 5, 0, 2, 4]
    assert batch.ids.tolist() == [
        [5, 6, 8, 7, 0, 0, 0, 0],
        [5, 6, 8, 9, 0, 0, 0, 0],
        [1, 2, 3, 9, 4, 4, 7, 8],
    ]
    assert batch.response_mask.int().tolist() == [
        [0, 1, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 1, 1, 0, 1],
    ]
    assert batch.tokens.tolist() == [6, 7, 9, 3, 4, 5, 8]


@pytest.mark.parametrize(
    ("prompt", "extends"),
    [
        ([1, 2, 3, 9, 7], True),  # the last token of the response may be another one
        ([8, 2, 3, 9, 7], False),  # another prompt before the same response
        ([1, 2, 8, 9, 7], False),  # another response
        ([1, 2, 3], False),  # the response is not whole
    ],
)
def test_a_turn_extends_the_last_one_only_with_its_prompt_and_response(prompt, extends):
    samples = [Sample([1, 2], [3, 4]), Sample(prompt, [5])]
    assert number_chains(samples, n_env=1) == [0, 0 if extends else 1]


def test_a_chain_with_a_gap():
    (batch,) = micro_batches(SAMPLES, ROWS.together([4, 0]), 100)
    assert batch.rows.tolist() == [0, 4]
    assert batch.response_mask.int().tolist() == [[0, 0, 1, 0, 0, 0, 0, 1]]


def test_the_share_of_the_prompt_tokens_that_is_saved():
    # 20 prompt tokens; rows of 8, 4 and 4 tokens, of which 7 are responses: 9 are computed
    assert share_saved(SAMPLES, ROWS, [range(6)]) == pytest.approx(11 / 20)
    # cut into [0, 2] and [4, ...]: the rows are 6, 8, 4 and 4 tokens long
    cut = [[0, 2], [4, 1, 3, 5]]
    assert share_saved(SAMPLES, ROWS, cut) == pytest.approx(1 - 15 / 20)
    assert share_saved(SAMPLES, Merged(SAMPLES, range(6)), cut) == 0


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 99), budget=st.sampled_from([1, 40, 10**6]), data=st.data())
def test_each_turn_is_in_one_row_with_its_own_tokens(seed, budget, data):
    always = partial(merged, worth=0.0)
    rollouts = fill_batch(E=4, seed=seed, extends=True, token_budget=budget, layout=always)
    rows = data.draw(st.lists(st.sampled_from(rollouts.rows), unique=True, min_size=1))
    seen = []
    for batch in rollouts.micro_batches(rows):
        sampled = [token for row in batch.rows.tolist() for token in rollouts.samples[row].response]
        assert batch.tokens.tolist() == sampled and batch.response_mask.sum() == len(sampled)
        seen += batch.rows.tolist()
    assert sorted(seen) == sorted(rows)


@pytest.mark.parametrize(("extends", "rows", "merges"), [
    (True, "merged", True), (True, "auto", True), (True, "padded", False), (False, "auto", False),
])  # fmt: skip
def test_the_layouts_of_the_rows_flag(extends, rows, merges):
    rollouts = fill_batch(extends=extends, layout=LAYOUTS[rows])
    together = rollouts.layout.together(rollouts.rows)
    assert (len(together) < len(rollouts.rows)) == merges
    assert (share_saved(rollouts.samples, rollouts.layout, [rollouts.rows]) > 0) == merges


# ---- exactness ------------------------------------------------------------------------------


def trained(layout, token_budget: int, lora_rank=0, **options):
    """Score a batch of which most turns extend others, and return all that an update makes of it:
    log-probs, values and the gradient of a minibatch that cuts some chains."""
    actor_critic = build(make_lm(std=0.1), 1, lora_rank=lora_rank, **options)
    torch.manual_seed(1)
    for name, parameter in actor_critic.named_parameters():
        if "lora" in name or name.startswith("head"):  # at 0 they would hide what depends on them
            torch.nn.init.normal_(parameter, std=0.1)
    reference = AdaptersOff(actor_critic) if lora_rank else Reference(make_lm(seed=2))
    agent = Agent(
        make_settings(value_clip=0.5, entropy_coef=0.01, minibatch=8), actor_critic,
        torch.Generator().manual_seed(0),
        terms=[KLInLoss(0.1, "k3", None)],
    )  # fmt: skip
    rollouts = fill_batch(E=6, extends=True, token_budget=token_budget, layout=layout)
    rollouts.score(actor_critic, reference, [list(range(0, 24, 2)), list(range(1, 24, 2))])
    rollouts.compute_returns(ESTIMATOR)
    advantages = whiten(rollouts.advantages, rollouts.response_mask)
    agent._minibatch(rollouts, advantages, [*range(3, 11), *range(15, 24)])
    found = {name: getattr(rollouts, name) for name in ("logps", "ref_logps", "values", "returns")}
    grads = {name: p.grad for name, p in actor_critic.named_parameters() if p.grad is not None}
    return rollouts, found | grads


@pytest.mark.parametrize(
    "options",
    [dict(), dict(packed=True), dict(recompute=True), dict(lora_rank=2), dict(top_layers=1),
     dict(packed=True, recompute=True, lora_rank=2)],
)  # fmt: skip
@pytest.mark.parametrize("token_budget", [60, 10**6])
def test_merged_turns_are_scored_and_trained_as_if_alone(token_budget, options):
    rollouts, together = trained(merged, token_budget, **options)
    layout = rollouts.layout
    assert 4 < len(layout.together(rollouts.rows)) < 12
    assert share_saved(rollouts.samples, layout, [rollouts.rows]) > 0.3
    _, alone = trained(one_per_turn, token_budget, **options)
    assert together.keys() == alone.keys() and len(together) > 10
    for name, tensor in alone.items():
        assert_close(
            together[name], tensor, atol=1e-6, rtol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


def dealer(minibatch: int):
    """A function that deals the turns of some chains to minibatches."""
    settings, generator = make_settings(minibatch=minibatch), torch.Generator().manual_seed(0)
    agent = SimpleNamespace(settings=settings, generator=generator)
    agent.shuffled = lambda batch, rows: Agent.shuffled(agent, batch, rows)

    def deal(chains):
        chain_of = {row: chain[0] for chain in chains for row in chain}
        batch = SimpleNamespace(layout=Merged([], chain_of))
        return Agent.minibatches(agent, batch, list(chain_of))

    return deal


def test_every_turn_is_at_every_place_equally_often():
    # A piece of four turns and four single ones. Pieces alone would begin with the long one in one
    # of 5 orders; from a random place on, each of the 8 turns is first in one of 8.
    chains = [[0, 1, 2, 3], [4], [5], [6], [7]]
    layout = Merged([], {turn: chain[0] for chain in chains for turn in chain})
    generator, first = torch.Generator().manual_seed(0), [0] * 8
    for _ in range(4000):
        order = layout.shuffled(range(8), minibatch=128, generator=generator)
        assert sorted(order) == list(range(8))
        first[order[0]] += 1
    # 500 are expected, with a standard deviation of (4000 x 1/8 x 7/8)^.5 = 21
    assert all(abs(count - 500) < 4 * 21 for count in first), first


def test_minibatches_hold_many_pieces_of_chains():
    chains = [list(range(n, 256, 4)) for n in range(4)]  # four chains of 64 turns
    minibatches = dealer(128)(chains)
    assert [len(rows) for rows in minibatches] == [128, 128]
    assert sorted(sum(minibatches, [])) == list(range(256))
    for rows in minibatches:
        # pieces of 128 / 32 = 4 turns, of which a cut parts one at each end
        starts = {row for row in rows if row - 4 not in rows}
        whole = [r for r in rows if r // 4 % 4 == 0 and {r, r + 4, r + 8, r + 12} <= set(rows)]
        assert len(whole) >= 30 and len(starts) > 4


def test_a_turn_is_in_each_minibatch_equally_often(monkeypatch):
    monkeypatch.setattr("storage.merged.PIECES", 1)  # pieces of up to four turns
    deal, counts = dealer(4), torch.zeros(12, 3)
    for _ in range(1000):
        for k, rows in enumerate(deal([[0, 4, 8], [1], [5, 9], [2], [6, 10], [3, 7, 11]])):
            counts[rows, k] += 1
    # 1000 draws of probability 1 / 3 have a standard deviation of 15
    assert (counts - 1000 / 3).abs().max() < 75
