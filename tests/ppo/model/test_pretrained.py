"""A model loads whole from its directory; test_bad_input has the directories that are refused."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
)

from ppo.model.make import build
from ppo.model.pretrained import load_lm, preset
from ppo.model.reloaded import try_export

ROOT = Path(__file__).resolve().parents[3]


def test_load_lm_from_a_directory(lm, tokenizer, tmp_path):
    lm.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    loaded, loaded_tokenizer, ends = load_lm(str(tmp_path / "m"), "cpu")
    assert ends == {0}
    assert_close(loaded.model.embed_tokens.weight, lm.model.embed_tokens.weight)


ASKED = [{"role": "user", "content": "Why?"}]
TEMPLATE = "{{ messages[0].content }}{% if thinking is defined %} [{{ thinking }}]{% endif %}"


ODD = "a 'b' \"c\"\n{{ d }} %} \\ é \N{GRINNING FACE}"


@pytest.mark.parametrize("value", [False, 3, ODD, [1, "x"], {"\N{GRINNING FACE}": 1}])
def test_template_arguments_are_in_the_template_and_in_what_is_exported(value, tokenizer, tmp_path):
    def render(tokenizer, **given) -> str:
        return tokenizer.apply_chat_template(ASKED, tokenize=False, **given)

    tokenizer.chat_template = TEMPLATE
    assert render(tokenizer) == "Why?"
    preset(tokenizer, {"thinking": value})
    assert render(tokenizer) == f"Why? [{value}]"
    assert render(tokenizer, thinking="now") == "Why? [now]"  # what a call says counts more
    tokenizer.save_pretrained(tmp_path)
    exported = AutoTokenizer.from_pretrained(tmp_path)
    assert render(exported) == f"Why? [{value}]"
    preset(exported, {"thinking": True})  # a run that goes on from the exported model
    assert render(exported) == "Why? [True]"


def test_null_is_none_in_a_template(tokenizer):
    tokenizer.chat_template = "{{ a is none }} {{ b[0] is none }} {{ b[1]['c'] is none }}"
    preset(tokenizer, {"a": None, "b": [None, {"c": None}]})
    assert tokenizer.apply_chat_template(ASKED, tokenize=False) == "True True True"


def test_a_template_may_take_the_place_of_the_models_own(tokenizer):
    preset(tokenizer, {"chat_template": TEMPLATE, "thinking": 3})
    assert tokenizer.apply_chat_template(ASKED, tokenize=False) == "Why? [3]"


def test_each_of_several_templates_gets_the_arguments(tokenizer):
    tokenizer.chat_template = {"default": TEMPLATE, "tool_use": "with tools: " + TEMPLATE}
    preset(tokenizer, {"thinking": False})
    for name, text in (("default", "Why? [False]"), ("tool_use", "with tools: Why? [False]")):
        rendered = tokenizer.apply_chat_template(ASKED, tokenize=False, chat_template=name)
        assert rendered == text


def test_a_base_models_turns_end_as_its_template_says(lm, tokenizer, tmp_path):
    # its tokenizer ends texts with another token, as Qwen2.5's base models do
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = tokenizer.chat_template.replace("\n", "<turn>\n")
    lm.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    loaded, loaded_tokenizer, ends = load_lm(str(tmp_path / "m"), "cpu")
    assert ends == {0, loaded_tokenizer.convert_tokens_to_ids("<turn>")} and len(ends) == 2
    loaded.save_pretrained(tmp_path / "exported")
    exported = GenerationConfig.from_pretrained(tmp_path / "exported")
    assert exported.eos_token_id == sorted(ends)


def test_a_composite_config_gives_the_text_model_and_exports_it(tokenizer, tmp_path):
    text = dict(
        vocab_size=260, hidden_size=32, intermediate_size=32, num_attention_heads=2, head_dim=16,
        num_key_value_heads=2, num_hidden_layers=2, linear_num_value_heads=2, eos_token_id=2,
        linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
        layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip
    vision = dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=32)
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=False)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    lm, _, _ = load_lm(str(tmp_path), "cpu")
    assert type(lm) is Qwen3_5ForCausalLM and lm.config.model_type == "qwen3_5_text"
    try_export(build(lm, 1), "")


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="bfloat16 is emulated")
def test_products_of_many_shapes_in_bfloat16_take_no_memory():
    """Without bounds of the caches, 600 shapes grow the process by 750 to 770 MB."""
    code = """
import torch
import ppo.model.pretrained

def size():  # in MB
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1000

before, layer = size(), torch.nn.Linear(64, 64).bfloat16()
for length in range(64, 664):
    layer(torch.ones(length, 64, dtype=torch.bfloat16, requires_grad=True)).sum().backward()
print(size() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert float(done.stdout) < 300, done.stderr
