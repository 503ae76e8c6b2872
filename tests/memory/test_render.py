"""Prompts: the template's ids, and what is dropped when they are too long."""

from copy import deepcopy
from datetime import datetime
from types import SimpleNamespace

import pytest
import transformers.utils.chat_template_utils
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from common.chat import Chat
from common.shorten import shortened
from memory.checks import make_render
from memory.render import Renderer, coder

TEMPLATE = (
    "{{ '<s>' }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def make_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """One token per word; <s> is a special token that a tokenizer adds at the start by itself."""
    words = ["<unk>", "<s>", "<end>", "[system]", "[user]", "[assistant]", "rules", "now"]
    words += [f"o{t}" for t in range(40)] + [f"a{t}" for t in range(40)]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")
    fast.chat_template = template
    return fast


TOKENIZER = make_tokenizer()


def conversation(turns: int) -> list[dict]:
    messages = [{"role": "system", "content": "rules"}]
    for t in range(turns):
        messages.append({"role": "user", "content": f"o{t}"})
        messages.append({"role": "assistant", "content": f"a{t}"})
    return [*messages, {"role": "user", "content": "now"}]


def words(ids: list[int]) -> str:
    return " ".join(TOKENIZER.convert_ids_to_tokens(ids))


def test_whole_prompt():
    prompt = Renderer(TOKENIZER, 100)(conversation(1))
    assert words(prompt.ids) == (
        "<s> [system] rules <end> [user] o0 <end> [assistant] a0 <end> [user] now <end> [assistant]"
    )
    assert not prompt.overflow
    assert all(type(token) is int for token in prompt.ids)


def test_same_ids_as_the_template_in_one_call():
    messages = conversation(3)
    expected = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
    assert Renderer(TOKENIZER, 100)(messages).ids == list(expected["input_ids"])


DATES = [
    # how templates print the date: Llama 3.2 and Llama 3.1, then others
    "{% if not date_string is defined %}{% if strftime_now is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% else %}"
    "{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}{{ date_string }} ",
    "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{{ date_string }} ",
    "{{ strftime_now('%d %b %Y') }} ",
    "{% set today = strftime_now('%Y-%m-%d') %}{{ today[8:] }} Jul {{ today.split('-')[0] }} ",
]


@pytest.mark.parametrize("date", DATES)
def test_a_template_that_prints_the_date_prints_the_same_every_day(date, monkeypatch):
    class Clock(datetime):
        @classmethod
        def now(cls):
            return cls(2026, 11, day)

    monkeypatch.setattr(transformers.utils.chat_template_utils, "datetime", Clock)
    tokenizer, asked = make_tokenizer(date + TEMPLATE), []
    tokenizer.add_tokens(["26", "Jul", "2024", "Nov", "2026", "21", "22"])
    for day in (21, 22):
        text = tokenizer.apply_chat_template(conversation(0), tokenize=False)
        assert text.startswith(f"{day} ") == ("strftime_now" in date)  # without a fixed date
        asked.append(Renderer(tokenizer, 100)(conversation(0)).ids)
    assert asked[0] == asked[1]
    assert tokenizer.convert_ids_to_tokens(asked[0])[:4] == ["26", "Jul", "2024", "<s>"]


def test_oldest_turns_are_dropped():
    # <s>, 3 tokens per message, [assistant]: 8 tokens without history, and 6 more per turn.
    # A limit of 20 holds exactly 8 + 2 * 6 tokens, turns 1 and 2 of 0, 1, 2; 19 holds turn 2 only.
    prompt = Renderer(TOKENIZER, 20)(conversation(3))
    assert words(prompt.ids) == (
        "<s> [system] rules <end> [user] o1 <end> [assistant] a1 <end> "
        "[user] o2 <end> [assistant] a2 <end> [user] now <end> [assistant]"
    )
    assert prompt.overflow
    assert len(Renderer(TOKENIZER, 19)(conversation(3)).ids) == 14
    assert len(Renderer(TOKENIZER, 8)(conversation(3)).ids) == 8


def test_exactly_at_the_limit_is_no_overflow():
    prompt = Renderer(TOKENIZER, 26)(conversation(3))
    assert len(prompt.ids) == 26 and not prompt.overflow


def test_too_long_without_history():
    message = (
        r"prompt limit 7 is below the system prompt and the current observation \(8 tokens\); "
        r"raise --prompt-limit"
    )
    for turns in (0, 1, 30):
        with pytest.raises(ValueError, match=message):
            Renderer(TOKENIZER, 7)(conversation(turns))
    # nothing but the system prompt could be shortened
    empty = [{"role": "system", "content": "rules"}, {"role": "user", "content": ""}]
    with pytest.raises(ValueError, match="prompt limit 6 is below the system prompt"):
        Renderer(TOKENIZER, 6)(empty)


@settings(max_examples=60, deadline=None)
@given(turns=st.integers(0, 40), limit=st.integers(8, 260))
def test_keeps_as_much_as_fits(turns, limit):
    calls = []
    prompt = Renderer(Counting(calls), limit)(conversation(turns))
    kept = min(turns, (limit - 8) // 6)  # the obvious way
    assert len(prompt.ids) == 8 + 6 * kept
    assert prompt.overflow == (kept < turns)
    assert f"o{turns - kept}" in words(prompt.ids) or kept == 0
    assert len(calls) <= 9  # n = 8, 16, 32, 40, then a bisection of at most 15 values


class Counting:
    """The tokenizer, counting its calls."""

    chat_template = TEMPLATE

    def __init__(self, calls: list):
        self.calls = calls

    def apply_chat_template(self, *args, **options):
        return TOKENIZER.apply_chat_template(*args, **options)

    def __call__(self, text, **options):
        self.calls.append(text)
        return TOKENIZER(text, **options)

    def decode(self, ids):
        return TOKENIZER.decode(ids)


def test_short_prompts_are_tokenised_once():
    calls = []
    Renderer(Counting(calls), 1000)(conversation(8))
    assert len(calls) == 1


@given(st.text(), st.booleans())
def test_text_is_encoded_and_decoded_as_the_tokenizer_does(text, ends):
    encode, decode = coder(TOKENIZER)
    text += "<end>" * ends  # a special token
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert encode(text) == ids
    assert decode(ids) == TOKENIZER.decode(ids)


def test_the_tokenizers_own_truncation_does_not_apply():
    tokenizer = deepcopy(TOKENIZER)
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    encode, _ = coder(tokenizer)
    assert len(encode("o1 o2 o3")) == 3


def test_without_a_system_message():
    messages = conversation(2)[1:]
    assert words(Renderer(TOKENIZER, 11)(messages).ids) == (
        "<s> [user] o1 <end> [assistant] a1 <end> [user] now <end> [assistant]"
    )


@pytest.mark.parametrize("system", [[], [{"role": "system", "content": "rules"}]])
def test_a_call_that_is_too_long_is_left_out_with_its_result(system):
    question = {"role": "user", "content": "o1"}
    call = {"role": "assistant", "content": "a1 " * 30}
    chat = Chat([*system, question], [], [call, {"role": "tool", "content": "o2 " * 30}])
    expected = "<s> " + "[system] rules <end> " * len(system) + "[user] o1 <end> [assistant]"
    assert words(Renderer(TOKENIZER, 8)(chat).ids) == expected


def test_no_chat_template():
    with pytest.raises(ValueError, match="has no chat template"):
        Renderer(make_tokenizer(template=None), 100)


def test_the_middle_of_an_observation_that_is_too_long_is_left_out():
    # <s>, [system] rules <end>, [user] .. <end> and [assistant] are 7 tokens; the observation is 60
    # words of 3 characters with their spaces, and the mark 8 words.
    text = " ".join(f"w{k % 10}" for k in range(60))
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": text}]
    render = Renderer(make_tokenizer(), 40)
    prompt = render(messages)
    assert prompt.shortened and not prompt.overflow and len(prompt.ids) == 40
    with pytest.raises(ValueError, match=r"is below .* \(67 tokens\); raise --prompt-limit"):
        environment = SimpleNamespace(history_thinking="strip", memory="full")
        memory = SimpleNamespace(messages=lambda: messages)
        make_render(environment, 40, make_tokenizer(), [memory])
    with pytest.raises(ValueError, match="raise --prompt-limit"):
        Renderer(make_tokenizer(), 12)(messages)  # not even the mark fits
    messages[1:1] = conversation(2)[1:-1]  # history goes first
    assert render(messages).ids == prompt.ids and render(messages).overflow


def test_a_long_observation_keeps_its_beginning_and_end():
    assert shortened("abcdefghij", 4) == "ab\n[... 6 characters are left out here ...]\nij"
    assert shortened("abcdefghij", 3) == "ab\n[... 7 characters are left out here ...]\nj"
    assert shortened("abcdefghij", 0) == "\n[... 10 characters are left out here ...]\n"
