"""Models whose files are quantized are read as whole numbers, or refused in one line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import make_decoder
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from benchmarks.common import VOCABULARY
from common.plugins import UserError
from ppo.model.make import build
from ppo.model.pretrained import load_lm
from ppo.model.reloaded import try_export
from recipes import TINY

SIZES = dict(
    vocab_size=VOCABULARY, hidden_size=64, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, head_dim=32, max_position_embeddings=4096,
    eos_token_id=2, pad_token_id=0, bos_token_id=None, tie_word_embeddings=False,
    initializer_range=0.3,
)  # fmt: skip
GPT_OSS = dict(num_local_experts=2, num_experts_per_tok=2)


def quantized(folder: Path, name: str, quantization: dict, parts, **settings) -> Path:
    """Write a tiny model. parts: name and weight -> what stands in the file by name, or {}"""
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    make_decoder(name, **SIZES, **settings).save_pretrained(folder)
    files = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        files |= parts(name, weight) or {name: weight}
    save_file(files, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    return folder


def in_mxfp4(name: str, weight: Tensor) -> dict[str, Tensor]:
    """Return bytes of two numbers, the low half first: 1 is 0.5, 2 is 1.0; times 2^(128 - 127)."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return {}
    experts, inputs, outputs = weight.shape
    shape = (experts, outputs, inputs // 32)
    return {
        f"{name}_blocks": torch.full((*shape, 16), 0x21, dtype=torch.uint8),
        f"{name}_scales": torch.full(shape, 128, dtype=torch.uint8),
    }


def in_fp8(name: str, weight: Tensor) -> dict[str, Tensor]:
    """Return 1.5 everywhere, a number of fp8, and a scale of 2 for the only block."""
    if not name.endswith("_proj.weight"):
        return {}
    return {
        name: torch.full(weight.shape, 1.5).to(torch.float8_e4m3fn),
        f"{name}_scale_inv": torch.full((1, 1), 2.0),
    }


def exported(folder: Path, tmp_path: Path):
    """Load the model, export it as a run does, and return both."""
    lm, *_ = load_lm(str(folder), "cpu")
    assert {p.dtype for p in lm.parameters()} == {torch.float32}
    actor_critic = build(lm, 1)
    try_export(actor_critic, "--model")
    actor_critic.export(tmp_path / "out", keep=True)
    assert "quantization_config" not in json.loads((tmp_path / "out/config.json").read_text())
    return lm, AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)


def test_gpt_oss_in_mxfp4(tmp_path):
    quantization = dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"])
    folder = quantized(tmp_path / "model", "GptOss", quantization, in_mxfp4, **GPT_OSS)
    lm, again = exported(folder, tmp_path)
    for model in (lm, again):
        down = model.model.layers[0].mlp.experts.down_proj  # (expert, input, output)
        assert_close(down[0, :4, 0].tolist(), [1.0, 2.0, 1.0, 2.0])


def test_a_model_in_fp8(tmp_path):
    quantization = dict(quant_method="fp8", weight_block_size=[128, 128], modules_to_not_convert=[])
    lm, again = exported(quantized(tmp_path / "model", "Qwen3", quantization, in_fp8), tmp_path)
    for model in (lm, again):
        up = model.model.layers[0].mlp.up_proj.weight
        assert_close(up, torch.full_like(up, 3.0))


def test_other_quantized_models_are_refused_in_one_line(tmp_path):
    folder = quantized(tmp_path / "model", "Qwen3", dict(quant_method="awq", bits=4), lambda *_: {})
    with pytest.raises(UserError, match=r"quantized \(awq\) and cannot be trained; take the model"):
        load_lm(str(folder), "cpu")
