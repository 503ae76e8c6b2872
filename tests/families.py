"""Small tokenizers with the chat templates of model families, from the package trl."""

import importlib.util
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from models.embedded import CHAT_TEMPLATE

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
