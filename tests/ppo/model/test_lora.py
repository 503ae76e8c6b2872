"""Adapters: what is trained, what the engine receives, what is exported."""

from argparse import ArgumentTypeError
from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from conftest import batch, make_decoder, make_lm
from peft import PeftModel
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from common.plugins import UserError
from ppo.model import lora
from ppo.model.actor_critic import ActorCritic, Reference
from ppo.model.decoder import Compute
from ppo.model.lora import AdaptersOff, adapted
from ppo.model.make import build
from ppo.model.reloaded import try_export
from run.earlier import model_path

EXPERTS = dict(num_local_experts=4)
TURNS = batch(([5, 6, 7, 8], [9, 10, 11]), ([5], [6]))


def with_adapters(**options) -> ActorCritic:
    """An actor-critic as after a training step, with B different from 0."""
    actor_critic = build(make_lm(), 1, lora_rank=4, **options)
    torch.manual_seed(1)
    for layer in adapted(actor_critic.lm).values():
        torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.1)
    return actor_critic


def test_a_rank_above_that_of_every_matrix_is_refused():
    lm = make_lm()
    widest = max(min(each.weight.shape) for each in lm.modules() if hasattr(each, "in_features"))
    with pytest.raises(UserError, match=f"--train lora:{widest + 1} is above .* {widest} at most"):
        build(lm, 1, lora_rank=widest + 1)


class Particular(torch.nn.Module):
    """A layer that takes nothing but a plain linear layer inside."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, hidden):
        if type(self.inner) is not torch.nn.Linear:
            raise TypeError(f"a {type(self.inner).__module__} is not for me")
        return self.inner(hidden)


def test_layers_that_fail_with_adapters_are_refused_in_one_line():
    lm = make_lm()
    lm.model.layers[0].mlp.down_proj = Particular(lm.model.layers[0].mlp.down_proj)
    line = r"^--train lora: peft's adapters do not fit Qwen2ForCausalLM \(a peft.* is not for me\)$"
    with pytest.raises(UserError, match=line):
        build(lm, 1, lora_rank=4)


class Tuple(torch.nn.Linear):
    """Returns more than a product, as routers of experts do."""

    def forward(self, hidden):
        return super().forward(hidden), "more"


def test_linear_layers_that_return_more_than_a_product_get_no_adapter():
    lm = make_lm()
    mlp = lm.model.layers[0].mlp
    mlp.up_proj = Tuple(mlp.up_proj.in_features, mlp.up_proj.out_features)
    mlp.forward = lambda x: mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x)[0])
    plain = len([each for each in lm.modules() if type(each) is torch.nn.Linear]) - 1  # the head
    build(lm, 1, lora_rank=4)
    assert len(adapted(lm)) == plain and not hasattr(mlp.up_proj, "lora_A")


def test_adapters_change_nothing_at_the_start():
    plain = build(make_lm(), 1)(TURNS)
    ours = build(make_lm(), 1, lora_rank=4)(TURNS)
    assert_close(tuple(ours), tuple(plain))


def test_only_adapters_and_the_critic_are_trained():
    actor_critic = with_adapters()
    scores = actor_critic(TURNS)
    (scores.logps.sum() + scores.values.sum()).backward()
    moved = {name for name, p in actor_critic.named_parameters() if p.grad is not None}
    assert moved == {n for n, p in actor_critic.named_parameters() if p.requires_grad}
    # 2 layers of 7 linear maps (q k v o gate up down), A and B each
    assert len(actor_critic.actor_parameters()) == 2 * 7 * 2
    assert {name for name in moved if name.startswith("lm.")} == {
        f"lm.{name}.lora_{part}.default.weight"
        for name in adapted(actor_critic.lm)
        for part in "AB"
    }


def test_recomputed_activations_give_adapters_the_same_gradients():
    gradients = []
    for recompute in (False, True):
        actor_critic = with_adapters(recompute=recompute)
        actor_critic(TURNS).logps.sum().backward()
        named = actor_critic.lm.named_parameters()
        gradients.append({name: p.grad for name, p in named if "lora_" in name})
    assert all(gradient.abs().sum() > 0 for gradient in gradients[0].values())
    assert_close(gradients[0], gradients[1])


def test_the_reference_is_the_base_without_a_copy():
    base = Reference(make_lm())(TURNS)
    actor_critic = with_adapters()
    reference = AdaptersOff(actor_critic)
    assert vars(reference) == {"actor_critic": actor_critic}
    before = actor_critic(TURNS).logps
    assert_close(reference(TURNS), base)
    assert_close(actor_critic(TURNS).logps, before)  # the adapters are on again
    assert (before - base).abs().max() > 1e-2


def test_pushed_weights_are_merged():
    actor_critic = with_adapters()
    plain = make_lm()
    assert [name for name, _ in actor_critic.weights()] == [n for n, _ in plain.named_parameters()]
    plain.load_state_dict(dict(actor_critic.weights()), strict=False)
    assert_close(build(plain, 1)(TURNS).logps, actor_critic(TURNS).logps)


def test_exports_load_in_transformers_and_peft(tmp_path):
    actor_critic = with_adapters()
    actor_critic.export(tmp_path, keep=True)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    adapter = PeftModel.from_pretrained(make_lm(), tmp_path / "adapter")
    for lm in (merged, adapter):
        logps = lm(TURNS.ids[:1]).logits[0, 3:6].log_softmax(-1)
        assert_close(actor_critic(TURNS).logps[:3], logps[range(3), [9, 10, 11]])
    # --model takes the first of them
    assert model_path(str(tmp_path)) == str(tmp_path)
    with pytest.raises(ArgumentTypeError, match="adapter is an adapter without its base; take the"):
        model_path(str(tmp_path / "adapter"))


@pytest.mark.parametrize(
    ("name", "more"),
    [("Qwen3Moe", dict(num_experts=4, moe_intermediate_size=16)), ("Mixtral", EXPERTS),
     ("GptOss", EXPERTS | dict(head_dim=16))],
    ids=["Qwen3Moe", "Mixtral", "GptOss"],
)  # fmt: skip
@torch.no_grad()
def test_adapters_of_experts_are_merged_and_exported(name, more, tmp_path):
    lm = make_decoder(
        name, vocab_size=64, hidden_size=32, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, num_experts_per_tok=2, initializer_range=0.3,
        **more,
    )  # fmt: skip
    base = deepcopy(lm)
    actor_critic = build(lm, 1, lora_rank=2)
    for layer in adapted(lm).values():
        torch.nn.init.normal_(layer.lora_B["default"].weight, std=0.3)
    actor_critic.export(tmp_path, keep=True)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    adapter = PeftModel.from_pretrained(deepcopy(base), tmp_path / "adapter")
    logits, before = lm(TURNS.ids).logits, base(TURNS.ids).logits
    assert (logits - before).abs().max() > 0.1
    for exported in (merged, adapter):
        assert_close(exported(TURNS.ids).logits, logits, atol=1e-4, rtol=1e-4)


def test_an_adapter_that_no_weight_takes_is_an_error(monkeypatch):
    actor_critic = with_adapters()
    monkeypatch.setattr(lora, "target", lambda layer: layer.lora_A["default"].weight)
    line = r"^--model m: what it exports is .*: 14 of peft's adapters cannot be merged \(Linear, "
    with pytest.raises(UserError, match=line):
        try_export(actor_critic, "--model m")


def test_only_a_rank_that_keeps_writes_and_only_adapters_are_exported_apart(tmp_path):
    with_adapters().export(tmp_path, keep=False)
    assert not list(tmp_path.iterdir())
    build(make_lm(), 1).export(tmp_path, keep=True)
    assert (tmp_path / "config.json").exists() and not (tmp_path / "adapter").exists()


def test_the_base_is_kept_in_bfloat16_and_its_rotary_tables_are_not():
    actor_critic = with_adapters(dtype=torch.bfloat16)
    kinds = {(p.requires_grad, p.dim()): p.dtype for p in actor_critic.lm.parameters()}
    assert kinds[False, 2] == torch.bfloat16
    assert kinds[True, 2] == kinds[False, 1] == torch.float32  # adapters; norms and biases
    reference = Reference(make_lm(), Compute(torch.bfloat16))
    for lm in (actor_critic.lm, reference.lm):
        assert lm.model.rotary_emb.inv_freq.dtype == torch.float32
    exact = with_adapters()(TURNS).logps
    assert_close(actor_critic(TURNS).logps, exact, atol=0.1, rtol=0.1)


def test_one_parameter_at_a_time_is_made_whole():
    asked = []
    actor_critic = with_adapters()
    actor_critic.whole = lambda parameters: asked.append(len(parameters)) or nullcontext()
    list(actor_critic.weights())
    # 2 layers of 7 matrices, 3 biases and 2 norms, the embeddings and the last norm: 26 parameters,
    # of which the 14 matrices need their A and B as well
    assert sorted(asked) == [1] * 12 + [3] * 14
