"""The tokens that chat templates mark messages with."""

import importlib.util
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from common.control import shown_tokens, turn_ends
from models.clone import CHAT_TEMPLATE

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"
THINKING = ["<think>", "</think>"]
# template of the package trl -> the tokens of the models that it belongs to, the end of a turn
# first; and whether they are special in these models' tokenizers
FAMILIES = {
    "qwen2_5": (["<|im_end|>", "<|im_start|>"], True),
    "qwen3": (["<|im_end|>", "<|im_start|>"], True),
    "qwen3_5_think": (["<|im_end|>", "<|im_start|>"], True),
    "smollm": (["<|im_end|>", "<|im_start|>"], True),
    "llama3": (["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"], True),
    "llama3_1": (["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"], True),
    "gemma": (["<end_of_turn>", "<start_of_turn>"], True),
    "gemma3": (["<end_of_turn>", "<start_of_turn>"], True),
    "deepseekv3": (["<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"], False),
    "mistral": (["</s>", "[INST]", "[/INST]"], True),
}
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content | trim }}"
    "{{ eos_token }}{% else %}[INST] {{ m.content | trim }} [/INST]{% endif %}{% endfor %}"
)
SMOLLM = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    f"{CHAT_TEMPLATE}"
)


def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes with a family's template and control tokens, whose own end of a
    text is another token, as in a base model."""
    marks, special = FAMILIES[family]
    template = {"mistral": MISTRAL, "smollm": SMOLLM}.get(family)
    if template is None:
        found = importlib.util.find_spec("trl")
        if found is None:
            pytest.skip("the package trl is not installed")
        folder = Path(found.submodule_search_locations[0]) / "chat_templates"
        template = (folder / f"{family}.jinja").read_text()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>", "<bos>"])
    backend.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in marks])
    backend.add_tokens([AddedToken(mark, normalized=False) for mark in ["\n", "ok", *THINKING]])
    eos = marks[0] if family in ("mistral", "deepseekv3") else "<|endoftext|>"
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=eos, bos_token="<bos>", chat_template=template
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_template_says_what_ends_a_turn(family):
    tokenizer = tokenizer_of(family)
    assert turn_ends(tokenizer) == {tokenizer.convert_tokens_to_ids(FAMILIES[family][0][0])}


def test_a_longer_token_for_the_same_end_ends_a_turn_too():
    # the embedded models have "<|im_end|>" and "<|im_end|>\n"
    assert turn_ends(AutoTokenizer.from_pretrained(TINY)) == {2, 364}


def test_a_template_without_control_tokens_has_no_end(tokenizer):
    assert turn_ends(tokenizer) == set()


def test_reasoning_is_shown_only_where_it_has_tokens():
    # for an unknown token a tokenizer gives the id of "<unk>", or of another token
    assert shown_tokens(AutoTokenizer.from_pretrained(TINY)) == set()
    qwen = tokenizer_of("qwen3")
    assert shown_tokens(qwen) == set(qwen.convert_tokens_to_ids(THINKING))
