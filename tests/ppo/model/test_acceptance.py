"""The test of a model at load: which models are trained, with whose masks, packed or padded."""

import sys

import pytest
import torch
import transformers
from conftest import batch, make_decoder
from torch.testing import assert_close
from transformers import Qwen2Config, Qwen2ForCausalLM

from ppo.model import acceptance, packing
from ppo.model.acceptance import accept
from ppo.model.decoder import PLAIN, Compute, padded
from ppo.model.layers import is_packed
from ppo.model.make import build

SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=8, pad_token_id=0,
)  # fmt: skip
LINEAR = SIZES | dict(
    num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["full_attention"],
    linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=16,
    linear_value_head_dim=16, initializer_range=0.3,
)  # fmt: skip


@pytest.fixture(autouse=True)
def lines(monkeypatch):
    """Return the lines that a run would print."""
    printed = []
    monkeypatch.setattr(acceptance, "print_status", printed.append)
    return printed


@pytest.mark.parametrize("std", [0.02, 1.0])
@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3"])
def test_other_decoders_work(name, tie, std):
    lm = make_decoder(name, **SIZES, tie_word_embeddings=tie, initializer_range=std)
    before = [p.clone() for p in lm.parameters()]
    assert accept(lm, PLAIN) == PLAIN
    assert not lm.lm_head._forward_hooks
    assert_close(list(lm.parameters()), before, atol=0, rtol=0)


class Capped(Qwen2ForCausalLM):
    """A plain decoder whose logits stay within (-cap, cap)."""

    cap = 30.0

    def forward(self, *args, **options):
        output = super().forward(*args, **options)
        output.logits = self.cap * (output.logits / self.cap).tanh()
        return output


@pytest.mark.parametrize("std", [0.02, 0.3])
def test_capped_logits_are_refused_however_small_they_are(std):
    torch.manual_seed(0)
    lm = Capped(Qwen2Config(**SIZES, initializer_range=std)).eval()
    with pytest.raises(ValueError, match="Capped does more than its layers and lm_head"):
        accept(lm, PLAIN)


def test_a_bias_of_the_head_is_refused():
    lm = make_decoder("Llama", **SIZES)
    lm.lm_head = torch.nn.Linear(32, 64)
    with pytest.raises(ValueError, match="LlamaForCausalLM does more than its layers and lm_head"):
        accept(lm, PLAIN)


LOCAL = SIZES | dict(initializer_range=0.3, max_position_embeddings=512, sliding_window=6)
KINDS = ["sliding_attention", "full_attention"]
# A window or chunk of 6 tokens, turns of up to 40.
LOCAL_MODELS = {
    "Mistral": LOCAL,
    "Ministral3": LOCAL,
    "Qwen2": LOCAL | dict(use_sliding_window=True, layer_types=KINDS),
    "Olmo3": LOCAL | dict(layer_types=KINDS),
    "Gemma3": LOCAL | dict(layer_types=KINDS),
    "GptOss": LOCAL | dict(layer_types=KINDS, num_local_experts=4, num_experts_per_tok=2),
    "Llama4": LOCAL | dict(
        attention_chunk_size=6, num_local_experts=2, intermediate_size_mlp=32,
        layer_types=["chunked_attention", "full_attention"],
    ),
}  # fmt: skip


def make_local(name: str):
    config = getattr(transformers, f"{name}{'Text' if name in TEXT else ''}Config")
    torch.manual_seed(0)
    return getattr(transformers, f"{name}ForCausalLM")(config(**LOCAL_MODELS[name])).eval()


TEXT = ("Gemma3", "Llama4")


@pytest.mark.parametrize("critic_layers", [None, 1])
@pytest.mark.parametrize("name", LOCAL_MODELS)
def test_local_and_chunked_attention_have_the_masks_of_the_model(name, critic_layers):
    lm = make_local(name)
    ids = torch.randint(1, 64, (40,)).tolist()
    actor_critic = build(lm, critic_layers, tokens=40)
    logps = lm(torch.tensor([ids]), use_cache=False).logits[0, 29:39].log_softmax(-1)
    scores = actor_critic(batch((ids[:30], ids[30:]), ([1] * 3, [2] * 4)))
    assert_close(scores.logps[:10], logps[range(10), ids[30:]], atol=1e-4, rtol=1e-4)
    scores.logps.sum().backward()
    assert lm.model.layers[0].self_attn.q_proj.weight.grad.any()


def test_a_window_that_no_turn_reaches_needs_no_mask():
    lm = make_decoder("Mistral", **LOCAL | dict(sliding_window=30))
    # The state that decides a token saw all tokens before it: the last one of 31 saw 30.
    assert accept(lm, PLAIN, tokens=31) == PLAIN
    assert accept(lm, PLAIN, tokens=32) != PLAIN
    # 60 tokens are allowed, a window of 30 and 16 more are enough
    assert acceptance.test_turns(lm, 60)[0].shape == (2, 46)
    assert acceptance.test_turns(lm, 30)[0].shape == (2, 24)


def test_one_turn_is_within_every_boundary_in_reach():
    # There a model may leave its masks out, and do so wrongly: Doge's short turns see what follows.
    lm = make_decoder("Mistral", **SIZES, sliding_window=16)
    ids, mask = acceptance.test_turns(lm, 60)
    assert mask.nonzero()[mask.nonzero()[:, 0] == 1][-1, 1] + 1 == 12 and ids.shape == (2, 32)


def test_a_model_that_cannot_compute_is_one_line(monkeypatch):
    lm = make_decoder("Qwen2", **SIZES)
    monkeypatch.setattr(lm.model, "forward", lambda *args, **options: 1 / 0)
    with pytest.raises(
        ValueError, match="Qwen2ForCausalLM does not compute .ZeroDivisionError: div"
    ):
        accept(lm, PLAIN)


def test_turns_are_longer_than_the_farthest_boundary_in_reach():
    config = Qwen2Config(**SIZES, sliding_window=None)
    config.rope_parameters = {"original_max_position_embeddings": 100, "rope_type": "default"}
    config.attention_chunk_size = 50
    assert acceptance.boundaries(config) == {50, 100}
    lm = Qwen2ForCausalLM(Qwen2Config(**SIZES))
    lm.config = config
    assert acceptance.test_turns(lm, 60)[0].shape == (2, 60)  # 66 tokens are not reached
    assert acceptance.test_turns(lm, 500)[0].shape == (2, 116)


@torch.no_grad()
@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3", "StableLm", "Qwen3Moe"])
def test_a_packed_turn_does_not_depend_on_its_neighbours(name, lines):
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    more = experts if name == "Qwen3Moe" else {}
    lm = make_decoder(name, **SIZES, **more, initializer_range=0.3)
    turns = batch(([5, 6, 7], [8, 9]), ([10, 11], [12, 13, 14]))
    plain = build(lm, 1)(turns).logps
    rows = build(lm, 1, packed=True)
    assert rows.compute.arrange is packing.packed and not lines
    assert_close(rows(turns).logps, plain, atol=1e-4, rtol=1e-4)


def make_linear(name: str):
    more = dict(num_experts=0, mlp_only_layers=[0, 1, 2, 3]) if name == "Qwen3Next" else {}
    if name == "Lfm2":
        more = dict(layer_types=["conv"] * 3 + ["full_attention"], block_ff_dim=32)
    config = getattr(transformers, f"{name}{'Text' if name == 'Qwen3_5' else ''}Config")
    torch.manual_seed(0)
    return getattr(transformers, f"{name}ForCausalLM")(config(**LINEAR | more)).eval()


@torch.no_grad()
@pytest.mark.parametrize("name", ["Qwen3_5", "Qwen3Next", "OlmoHybrid", "Lfm2"])
def test_a_state_that_runs_over_the_borders_of_turns_means_padded_rows(name, lines):
    lm = make_linear(name)
    turns = batch(([5, 6, 7], [8, 9]), ([10, 11], [12, 13, 14]))
    plain = build(lm, 1)(turns).logps
    assert_close(plain[:2], lm(torch.tensor([[5, 6, 7, 8, 9]])).logits[0, 2:4].log_softmax(-1)[
        range(2), [8, 9]
    ])  # fmt: skip
    rows = build(lm, 1, packed=True)
    assert rows.compute.arrange is padded and lm.config._attn_implementation != "packed"
    [line] = lines
    assert line.startswith(f"{name}ForCausalLM is trained in padded rows, not in packed ones: ")
    assert torch.equal(rows(turns).logps, plain)


def rule_by_turns(rule):
    """A slow version of flash-linear-attention's kernel: the state begins anew with each turn."""

    def cut(query, key, value, g, beta, cu_seqlens=None, **options):
        if cu_seqlens is None:
            return rule(query, key, value, g=g, beta=beta, **options)
        lengths = cu_seqlens.diff().tolist()
        parts = zip(*(x.split(lengths, dim=1) for x in (query, key, value, g, beta)), strict=True)
        outs = [rule(q, k, v, g=decay, beta=b, **options)[0] for q, k, v, decay, b in parts]
        return torch.cat(outs, dim=1), None

    return cut


def conv_by_turns(conv):
    """A slow version of the kernel of causal-conv1d."""

    def cut(hidden, *args, seq_idx=None, **options):
        if seq_idx is None:
            return conv(hidden, *args, **options)
        turns = hidden.split(seq_idx[0].bincount().tolist(), dim=2)
        return torch.cat([conv(turn, *args, **options) for turn in turns], dim=2)

    return cut


@torch.no_grad()
@pytest.mark.parametrize("name", ["Qwen3_5", "Qwen3Next", "OlmoHybrid", "Lfm2"])
def test_kernels_that_know_the_borders_of_turns_are_told_them(name, lines, monkeypatch):
    lm = make_linear(name)
    module = sys.modules[type(lm).__module__]
    monkeypatch.setattr(module, "causal_conv1d_fn", conv_by_turns(module.causal_conv1d_fn))
    if name != "Lfm2":
        rule = rule_by_turns(module.torch_chunk_gated_delta_rule)
        monkeypatch.setattr(module, "torch_chunk_gated_delta_rule", rule)
    turns = batch(([5, 6, 7], [8, 9]), ([10, 11], [12, 13, 14]))
    plain = build(lm, 1)(turns).logps
    rows = build(lm, 1, packed=True)
    assert is_packed(rows.compute) and not lines
    assert_close(rows(turns).logps, plain, atol=1e-4, rtol=1e-4)


class Leaky(Qwen2ForCausalLM):
    """A model whose layers mix in the mean of all tokens of a row before a token."""

    def __init__(self, config):
        super().__init__(config)
        self.model.layers[0].register_forward_hook(
            lambda layer, inputs, hidden: hidden + 1e-3 * hidden.cumsum(1)
        )


def test_a_small_leak_is_found(lines):
    torch.manual_seed(0)
    lm = Leaky(Qwen2Config(**SIZES, initializer_range=0.3)).eval()
    assert accept(lm, PLAIN, packed=True).arrange is padded
    assert "in padded rows" in lines[0]
    torch.manual_seed(0)
    lm = Leaky(Qwen2Config(**SIZES, initializer_range=0.3)).eval()
    assert accept(lm, Compute(torch.bfloat16), packed=True).arrange is padded


def test_attention_that_has_lost_its_turns_is_an_error():
    lm = make_decoder("Qwen2", **SIZES)
    build(lm, 1, packed=True)
    with pytest.raises(AssertionError, match="Qwen2Attention has lost the turns of its row"):
        lm.model.layers[0](
            torch.zeros(1, 4, 32), position_embeddings=[torch.zeros(1, 4, 8)] * 2
        )  # fmt: skip


def test_what_a_model_does_beyond_the_layers_is_named():
    more = LOCAL | dict(layer_types=KINDS, global_head_dim=8, vocab_size_per_layer_input=64)
    torch.manual_seed(0)
    config = transformers.Gemma4TextConfig(
        **more, num_kv_shared_layers=1, hidden_size_per_layer_input=16, final_logit_softcapping=30.0
    )
    lm = transformers.Gemma4ForCausalLM(config).eval()
    reasons = "its layers share keys and values, its layers have inputs of their own, it caps its"
    with pytest.raises(ValueError, match=rf"^cannot train this model: Gemma4.* \({reasons} logits"):
        accept(lm, PLAIN)


def test_a_failing_layer_is_one_line():
    lm = make_decoder("Qwen2", **SIZES)
    lm.model.layers[1].mlp.forward = lambda hidden: hidden.no_such_thing
    with pytest.raises(ValueError, match="^cannot train this model: .*no_such_thing.*supported"):
        accept(lm, PLAIN)


def test_a_model_of_other_parts_is_refused():
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2)
    with pytest.raises(ValueError, match="cannot train GPT2LMHeadModel: its parts have other"):
        accept(transformers.GPT2LMHeadModel(config), PLAIN)
