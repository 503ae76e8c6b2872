"""The tokens that chat templates mark messages with."""

from pathlib import Path

import pytest
from families import FAMILIES, THINKING, tokenizer_of
from transformers import AutoTokenizer

from common.control import shown_tokens, turn_ends

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_template_says_what_ends_a_turn(family):
    tokenizer = tokenizer_of(family)
    assert turn_ends(tokenizer) == {tokenizer.convert_tokens_to_ids(FAMILIES[family][0][0])}


def test_a_longer_token_for_the_same_end_ends_a_turn_too():
    # the embedded models have "<|im_end|>" and "<|im_end|>\n"
    assert turn_ends(AutoTokenizer.from_pretrained(TINY)) == {2, 370}


def test_a_template_without_control_tokens_has_no_end(tokenizer):
    assert turn_ends(tokenizer) == set()


def test_reasoning_is_shown_only_where_it_has_tokens():
    # for an unknown token a tokenizer gives the id of "<unk>", or of another token
    assert shown_tokens(AutoTokenizer.from_pretrained(TINY)) == set()
    qwen = tokenizer_of("qwen3")
    assert shown_tokens(qwen) == set(qwen.convert_tokens_to_ids(THINKING))
