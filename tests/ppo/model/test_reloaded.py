"""The trial of an export at load: what is loaded again is the same model, or the run is refused."""

import pytest
import torch
from conftest import make_decoder, make_lm

from ppo.model import reloaded
from ppo.model.make import build
from ppo.model.reloaded import try_export

SMALL = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, head_dim=16,
    num_attention_heads=2, num_key_value_heads=2, initializer_range=0.3,
)  # fmt: skip
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lora_rank", [0, 2])
def test_an_export_that_is_the_same_model_is_taken(dtype, lora_rank):
    lm = make_decoder("Qwen3Moe", **SMALL, **EXPERTS)
    actor_critic = build(lm, 1, dtype=dtype, lora_rank=lora_rank)
    state = torch.get_rng_state()
    try_export(actor_critic, "--model m")
    assert torch.equal(torch.get_rng_state(), state)  # a run draws what it drew without the trial


def test_what_a_deep_stack_of_frozen_layers_rounds_is_no_other_model():
    shape = SMALL | dict(num_hidden_layers=30)  # in bfloat16 all of them add to the same 8 bits
    actor_critic = build(make_decoder("Llama", **shape), 1, dtype=torch.bfloat16, lora_rank=2)
    try_export(actor_critic, "--model m")


def test_an_export_that_loses_a_weight_is_refused():
    actor_critic = build(make_lm(tie=False), 0)
    kept = [(name, w) for name, w in actor_critic.weights() if name != "lm_head.weight"]
    actor_critic.weights = lambda: iter(kept)
    line = r"^--model m: what it exports is .*: 1 weights are lost .*\(lm_head.weight, \.\.\.\)$"
    with pytest.raises(ValueError, match=line):
        try_export(actor_critic, "--model m")


def test_an_export_that_computes_something_else_is_refused():
    actor_critic = build(make_lm(), 0)
    actor_critic.lm.model.norm.variance_epsilon = 100.0  # config.json does not say so
    with pytest.raises(ValueError, match=r"^--model m: what it exports .*: logits differ by \d"):
        try_export(actor_critic, "--model m")


def test_a_large_export_is_not_tried_and_a_line_says_so(monkeypatch):
    lines = []
    monkeypatch.setattr(reloaded, "print_status", lines.append)
    monkeypatch.setattr(reloaded, "LARGE", 100)
    actor_critic = build(make_lm(), 0)
    actor_critic.export = None  # it is not called
    try_export(actor_critic, "--model m")
    assert lines == ["the export of this model is not tried: it has 0.0 GB"]
