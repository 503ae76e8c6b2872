"""Packed turns: the same numbers and gradients as padded ones."""

import pytest
import torch
from conftest import batch, make_lm, make_prompt
from torch.testing import assert_close
from transformers import Qwen3Config, Qwen3ForCausalLM

from ppo.engines.lockstep import TransformersEngine
from ppo.model import packing
from ppo.model.actor_critic import Reference
from ppo.model.make import build
from ppo.model.packing import pack

TURNS = [([5, 6, 7, 8], [9, 10, 11]), ([5], [6]), ([20, 21], [30, 31, 32, 33, 34, 35])]


def test_a_packed_row_by_hand():
    padded = batch(([5, 6], [7]), ([8], [9, 10, 11]), ([4, 4], []))
    ids, mask, positions, turns = pack(padded.ids, padded.response_mask)
    # the padding (id 3) is gone; the third turn has no response and keeps two tokens
    assert ids.tolist() == [[5, 6, 7, 8, 9, 10, 11, 4, 4]]
    assert mask.int().tolist() == [[0, 0, 1, 0, 1, 1, 1, 0, 0]]
    assert positions.tolist() == [[0, 1, 2, 0, 1, 2, 3, 0, 1]]
    assert turns.ends.tolist() == [0, 3, 7, 9] and turns.longest == 4


def scored(packed: bool, k: int, recompute: bool = False):
    """Return the scores of TURNS and the gradients of a loss on them."""
    actor_critic = build(make_lm(), k, recompute=recompute, packed=packed)
    torch.manual_seed(1)
    torch.nn.init.normal_(actor_critic.head.weight)
    turns = batch(*TURNS, temperature=0.7)
    scores = actor_critic(turns)
    (scores.logps.square().mean() + scores.values.square().mean()).backward()
    values = actor_critic.values(turns)
    reference = Reference(actor_critic.lm, actor_critic.compute)(turns)
    return [*scores, values, reference], {n: p.grad for n, p in actor_critic.named_parameters()}


@pytest.mark.parametrize("k", [0, 1, 2])
def test_packed_and_padded_agree(k):
    for ours, theirs in zip(scored(True, k), scored(False, k), strict=True):
        assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
def test_recomputed_activations_change_nothing(packed):
    for ours, theirs in zip(scored(packed, 1, True), scored(packed, 1), strict=True):
        assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_queries_keys_and_values_are_of_one_dtype(monkeypatch):
    # Qwen3's norms of queries and keys return the dtype of their weights, which is fp32
    seen, plain = set(), packing.scaled_dot_product_attention
    config = Qwen3Config(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip

    def attention(*tensors, **how):
        seen.update(tensor.dtype for tensor in tensors)
        return plain(*tensors, **how)

    monkeypatch.setattr(packing, "scaled_dot_product_attention", attention)
    model = build(Qwen3ForCausalLM(config), 1, dtype=torch.bfloat16, packed=True)
    model(batch(*TURNS))
    assert seen == {torch.bfloat16}


def test_the_kernel_gets_each_key_head_once(monkeypatch):
    seen = []

    def kernel(q, k, v, *ends_and_lengths, enable_gqa=False, **options):
        seen.append((q.shape, k.shape, v.shape, enable_gqa))
        return q

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    query, key = torch.zeros(1, 4, 5, 8), torch.zeros(1, 2, 5, 8)  # 4 heads of queries, 2 of keys
    turns = packing.Turns(torch.tensor([0, 5], dtype=torch.int32), 5)
    packing._attend_by_kernel(query, key, key, turns, scale=1.0)
    assert seen == [((5, 4, 8), (5, 2, 8), (5, 2, 8), True)]


def test_a_micro_batch_without_response_tokens_has_gradients_of_zero():
    actor_critic = build(make_lm(), 1, packed=True)
    scores = actor_critic(batch(([5, 6], [])))
    assert len(scores.logps) == len(scores.values) == 0
    (scores.logps.sum() + scores.values.sum()).backward()
    assert all((p.grad == 0).all() for p in actor_critic.parameters() if p.grad is not None)


def test_a_packed_model_generates_as_before(tokenizer):
    def greedy(packed):
        engine = TransformersEngine(tokenizer, {0}, 6, 0)
        engine.push_weights(build(make_lm(), 0, packed=packed))
        for slot, (prompt, _) in enumerate(TURNS):
            engine.submit(slot, make_prompt(prompt), seed=(slot,))
        return [response.ids for _, response in engine.step()]

    assert greedy(True) == greedy(False)
