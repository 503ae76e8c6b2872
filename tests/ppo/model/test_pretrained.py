"""A model loads whole from its directory; test_bad_input has the directories that are refused."""

import pytest
from torch.testing import assert_close
from transformers import AutoTokenizer, GenerationConfig

from ppo.model.pretrained import load_lm, preset


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
