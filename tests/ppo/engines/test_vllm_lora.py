"""vLLM with adapters beside its weights, for real on the CPU."""

import importlib.util

import pytest
import torch
from conftest import batch, make_decoder, make_prompt
from transformers import Qwen2Config, Qwen2ForCausalLM

from common.errors import RunError
from ppo.model.lora import adapted
from ppo.model.make import build

if importlib.util.find_spec("vllm") is None:  # installed but broken is no reason to skip
    pytest.skip("vLLM is not installed", allow_module_level=True)

from ppo.engines.vllm_lora import SeparateAdapters, make_engine_with_adapters

SETTINGS = dict(
    prompt_limit=64, dtype="float32", seed=0, gpu_memory_utilization=0.3, max_num_seqs=4
)


def test_adapters_beside_the_weights_are_the_trainers(tokenizer, tmp_path):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=260, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, eos_token_id=0, bos_token_id=None,
        initializer_range=0.2,
    )  # fmt: skip
    lm = Qwen2ForCausalLM(config).eval()
    lm.save_pretrained(tmp_path)
    engine = make_engine_with_adapters(
        tokenizer, {0}, 8, 1.0, lora_rank=4, model=str(tmp_path), **SETTINGS
    )
    actor_critic = build(lm, 0, lora_rank=4)
    said = []
    for scale in (0.0, 0.3, 0.6):  # of B: the adapters change nothing, and then something else
        for layer in adapted(lm).values():
            torch.nn.init.normal_(layer.lora_B["default"].weight, std=scale)
        engine.push_weights(actor_critic)  # which compares log-probs by itself, too
        for slot in range(4):
            engine.submit(slot, make_prompt([5, 6, 7]), seed=(slot,))
        responses = []
        while not engine.idle:
            responses += [response for _, response in engine.step()]
        assert len(responses) == 4
        for response in responses:
            trainers = actor_critic(batch(([5, 6, 7], response.ids))).logps
            assert torch.allclose(trainers, torch.tensor(response.logps), atol=1e-4)
        said.append(sorted(response.ids for response in responses))
    assert said[0] != said[1] != said[2]


@pytest.mark.parametrize("rank", [0, 513])
def test_a_rank_that_vllm_does_not_have(rank, tokenizer):
    with pytest.raises(ValueError, match="needs --train lora:RANK, up to 512$"):
        make_engine_with_adapters(tokenizer, {0}, 8, 1.0, lora_rank=rank, model="none", **SETTINGS)


def test_adapters_of_experts_are_refused():
    lm = make_decoder(
        "Qwen3Moe", vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=16,
    )  # fmt: skip
    line = "^--engine vllm-lora has no place for adapters of experts; take --engine vllm$"
    with pytest.raises(RunError, match=line):
        SeparateAdapters(8).load(None, build(lm, 0, lora_rank=2), torch.float32)
