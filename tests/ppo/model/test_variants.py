"""Models that are plain decoders but for a name or a factor, against their own forward passes."""

from copy import deepcopy

import pytest
import torch
from conftest import batch, make_decoder
from torch.testing import assert_close

from ppo.model import packing
from ppo.model.export import buffers_to_parameters
from ppo.model.make import build
from ppo.model.reloaded import try_export
from ppo.model.variants import make_plain

SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, pad_token_id=0,
    num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3,
)  # fmt: skip
FACTORS = dict(
    logits_scaling=8.0, embedding_multiplier=12.0, residual_multiplier=0.22,
    attention_multiplier=0.1,
)  # fmt: skip
CONV = ["conv", "full_attention"]
EXPERTS = dict(
    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, num_dense_layers=1,
)  # fmt: skip
VARIANTS = {
    "Cohere": dict(logit_scale=0.0625),
    "Granite": FACTORS,
    "Lfm2": dict(layer_types=CONV, block_ff_dim=32),
    "Lfm2Moe": dict(layer_types=CONV, **EXPERTS),
}


@pytest.mark.parametrize("lora_rank", [0, 2], ids=["whole", "LoRA"])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_trainer_computes_what_the_model_did_before(name, lora_rank):
    lm = make_decoder(name, **SIZES, **VARIANTS[name])
    ids = torch.arange(1, 25)
    with torch.no_grad():
        logits = deepcopy(lm)(ids[None]).logits[0]
    buffers_to_parameters(lm)  # as `load_lm` does: the mixture's bias is exported
    logps = logits[19:23].log_softmax(-1)[range(4), ids[20:]]
    actor_critic = build(lm, 1, lora_rank=lora_rank)
    make_plain(lm)  # a second time changes nothing
    scores = actor_critic(batch((ids[:20].tolist(), ids[20:].tolist())))
    assert_close(scores.logps, logps, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        assert_close(lm(ids[None]).logits[0], logits)  # the engine samples with this forward pass
    scores.logps.sum().backward()
    assert any(p.grad is not None and p.grad.any() for p in actor_critic.actor_parameters())
    try_export(actor_critic, "")


def test_a_critic_reads_features_that_are_not_scaled_as_the_logits_are():
    actor_critic = build(make_decoder("Granite", **SIZES, **FACTORS), 1)
    hidden = torch.ones(1, 32)
    assert_close(actor_critic.lm.model.norm(hidden), actor_critic.branch_norm(hidden) / 8)


def test_layers_that_scale_what_they_add_are_packed():
    actor_critic = build(make_decoder("Granite", **SIZES, **FACTORS), 1, packed=True)
    assert actor_critic.compute.arrange is packing.packed
