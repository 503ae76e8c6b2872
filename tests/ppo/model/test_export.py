"""What a run exports: it is made ready, and tried, when the model is loaded."""

import json

import pytest
import torch
from conftest import make_decoder
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GenerationConfig

from ppo.model import export
from ppo.model.make import build
from ppo.model.pretrained import load_lm

SIZES = dict(
    vocab_size=260, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, eos_token_id=0, tie_word_embeddings=False,
)  # fmt: skip
EXPERTS = dict(
    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, n_group=1, topk_group=1,
    first_k_dense_replace=1,
)  # fmt: skip
LATENT = dict(
    num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16,
    qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=16,
)  # fmt: skip


def change(file, **settings) -> None:
    now = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(now | settings))


def saved(lm, tokenizer, folder) -> str:
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_settings_of_sampling_without_sampling_are_repaired_at_load(
    lm, tokenizer, tmp_path, monkeypatch
):
    printed = []
    monkeypatch.setattr(export, "print_status", printed.append)
    path = saved(lm, tokenizer, tmp_path / "m")
    change(tmp_path / "m" / "generation_config.json", temperature=0.9, top_p=0.6, do_sample=False)
    loaded, _, _ = load_lm(path, "cpu")
    build(loaded, 1).export(tmp_path / "out", keep=True)
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (written["do_sample"], written["temperature"], written["top_p"]) == (True, 0.9, 0.6)
    assert len(printed) == 1 and "do_sample" in printed[0]


def test_files_that_cannot_be_written_again_are_one_line_at_load(
    lm, tokenizer, tmp_path, monkeypatch
):
    path = saved(lm, tokenizer, tmp_path / "m")

    def refuse(*args, **options):
        raise ValueError("no such field\nin this version")

    monkeypatch.setattr(GenerationConfig, "save_pretrained", refuse)
    problem = "^--model .*m: its files cannot be exported again: no such field in this version$"
    with pytest.raises(ValueError, match=problem):
        load_lm(path, "cpu")


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "more"), [("DeepseekV3", EXPERTS | LATENT), ("Glm4Moe", EXPERTS | dict(head_dim=8))]
)
def test_buffers_that_are_weights_are_pushed_and_exported(name, more, tokenizer, tmp_path):
    lm = make_decoder(name, **SIZES | more)
    [bias] = [b for n, b in lm.named_buffers() if n.endswith("e_score_correction_bias")]
    bias.copy_(torch.arange(4.0) * 5)  # chooses other experts than zeros
    path = saved(lm, tokenizer, tmp_path / "m")
    actor_critic = build(load_lm(path, "cpu")[0], 1)
    pushed = dict(actor_critic.weights())
    assert_close(pushed["model.layers.1.mlp.gate.e_score_correction_bias"], bias)
    assert all(p.requires_grad for p in actor_critic.critic_parameters())
    actor_critic.export(tmp_path / "out", keep=True)
    ids = torch.arange(3, 30)[None]
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert_close(exported(ids).logits, lm(ids).logits)


def test_a_head_of_its_own_is_not_exported_as_tied(lm, tokenizer, tmp_path):
    path = saved(lm, tokenizer, tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    weights = load_file(file)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + 0.5
    save_file(weights, file, metadata={"format": "pt"})
    assert json.loads((tmp_path / "m" / "config.json").read_text())["tie_word_embeddings"]
    build(load_lm(path, "cpu")[0], 1).export(tmp_path / "out", keep=True)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["tie_word_embeddings"] is False
    assert_close(
        load_file(tmp_path / "out" / "model.safetensors")["lm_head.weight"],
        weights["lm_head.weight"],
    )


def test_a_tied_head_stays_tied(lm, tokenizer, tmp_path):
    loaded, _, _ = load_lm(saved(lm, tokenizer, tmp_path / "m"), "cpu")
    assert loaded.config.tie_word_embeddings is True


def test_an_adapter_names_its_base(lm, tokenizer, tmp_path, monkeypatch):
    saved(lm, tokenizer, tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    actor_critic = build(load_lm("m", "cpu")[0], 1, lora_rank=2)
    actor_critic.export(tmp_path / "out", keep=True)
    config = json.loads((tmp_path / "out" / "adapter" / "adapter_config.json").read_text())
    base = config["base_model_name_or_path"]
    assert base == str(tmp_path / "m")  # found from any directory
    PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base), tmp_path / "out" / "adapter"
    )
