"""Prompts that continue the last prompt and its response: the ids that were sampled stay."""

from dataclasses import replace

import pytest
from test_memory import step
from test_render import TEMPLATE, TOKENIZER, conversation, make_tokenizer, words
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import memory
from common.chat import Chat
from envs.text_env import Observation
from memory.render import Renderer
from memory.variants import BlockChat
from recipes import TINY

TINY_TOKENIZER = AutoTokenizer.from_pretrained(TINY)
END = TINY_TOKENIZER.eos_token_id
QUESTION = [{"role": "user", "content": "Hi!"}]


def spelled(text: str) -> list[int]:
    """The ids of a text, a token for each character: no tokenizer writes it like this."""
    return [token for c in text for token in TINY_TOKENIZER(c, add_special_tokens=False).input_ids]


def answered(content: str) -> list[dict]:
    return [*QUESTION, {"role": "assistant", "content": content}, {"role": "user", "content": "?"}]


def test_the_history_stays_as_it_was_sampled():
    render = Renderer(TINY_TOKENIZER, 1000)
    first = render(QUESTION)
    before = [*first.ids, *spelled("go forward"), END]
    prompt = render(answered("go forward"), before)
    # all but the end, for which the template has one token together with the next line
    assert prompt.ids[: len(before) - 1] == before[:-1] and not prompt.reencoded
    assert TINY_TOKENIZER.decode(prompt.ids[len(before) - 1]) == "<|im_end|>\n"
    anew = render(answered("go forward"))
    assert anew.reencoded and anew.ids != prompt.ids and len(anew.ids) < len(prompt.ids)
    assert TINY_TOKENIZER.decode(prompt.ids) == TINY_TOKENIZER.decode(anew.ids)


def test_a_response_that_the_limit_cut_is_ended_by_the_template():
    render = Renderer(TINY_TOKENIZER, 1000)
    before = [*render(QUESTION).ids, *spelled("go for")]
    prompt = render(answered("go for"), before)
    assert prompt.ids[: len(before) - 1] == before[:-1]
    assert TINY_TOKENIZER.decode(prompt.ids) == render.write(answered("go for"), {})


@pytest.mark.parametrize(
    ("sampled", "shown"),
    [
        (spelled("go left") + [END], "turn left"),  # the memory corrected it
        (spelled("go ") + [1] + spelled("left") + [END], "go left"),  # <|im_start|> is hidden
        (spelled(" go") + [END], "go"),  # the template, or the memory, strips it
    ],
)
def test_a_rewritten_history_is_encoded_anew(sampled, shown):
    render = Renderer(TINY_TOKENIZER, 1000)
    prompt = render(answered(shown), [*render(QUESTION).ids, *sampled])
    assert prompt == render(answered(shown)) and prompt.reencoded


def test_a_new_episode_begins_anew():
    render = Renderer(TINY_TOKENIZER, 1000)
    before = [*render(answered("go")).ids, *spelled("go"), END]
    assert render(QUESTION, before) == render(QUESTION)
    assert not render(QUESTION, before).reencoded


def test_a_prompt_within_the_limit_stays_within_it():
    # The sampled ids are longer than the text's own: with them the prompt would be too long.
    anew = Renderer(TINY_TOKENIZER, 1000)(answered("go forward"))
    render = Renderer(TINY_TOKENIZER, len(anew.ids))
    before = [*render(QUESTION).ids, *spelled("go forward"), END]
    assert render(answered("go forward"), before) == anew


def test_a_tokenizer_that_adds_a_blank_encodes_anew():
    # Words are joined by blanks in this tokenizer, so the new part alone is another text.
    render = Renderer(make_tokenizer(TEMPLATE.replace(" <end> ", "<end>")), 100)
    before = [*render(conversation(0)).ids, 9]
    assert render(conversation(1), before).ids == render(conversation(1)).ids


def test_a_tokenizer_that_puts_a_blank_first_encodes_anew():
    """As tokenizers of Llama 2 do: the blank is lost where the text is decoded by itself."""
    letters = ["<end>", "?", "▁", *"abcdefghijklmnopqrstuvwxyz:."]
    core = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, [], unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Metaspace(prepend_scheme="always")
    template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}.{% endfor %}a:"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template)
    render = Renderer(tokenizer, 100)
    asked = [{"role": "user", "content": "hi"}]
    said = [letters.index(c) for c in "go"]
    before = [*render(asked).ids, *said, 0]
    answered = [*asked, {"role": "assistant", "content": "go"}, {"role": "user", "content": "now"}]
    prompt = render(answered, before)
    assert render.decode(prompt.ids) == "u:hi.a:go.u:now.a:"  # and not "u:hi.a:go .u:now.a:"
    assert prompt.reencoded


# ---- dropping -------------------------------------------------------------------------------


def grown(turns: int) -> Chat:
    chat = Chat.of(conversation(turns))
    return BlockChat(chat.head, chat.turns, chat.now)


@pytest.mark.parametrize("limit", [8, 14, 40, 100, 200])
def test_the_oldest_turns_are_dropped_in_blocks(limit):
    render, oldest = Renderer(TOKENIZER, limit), []
    for turns in range(40):
        prompt = render(grown(turns))
        fit = min(turns, (limit - 8) // 6)  # 8 tokens without history, and 6 more per turn
        kept = (len(prompt.ids) - 8) // 6
        assert fit / 2 <= kept <= fit and prompt.overflow == (kept < turns)
        assert f"a{turns - 1} " in words(prompt.ids) or not kept  # the latest turns
        oldest.append(turns - kept)
    # With room for `fit` turns a block is at least a quarter of them, so 40 turns make few breaks.
    assert oldest == sorted(oldest)
    assert len(set(oldest)) <= 2 + 4 * 40 / max(1, fit)


def test_a_full_memory_makes_prompts_that_extend_one_another():
    render, remembered = Renderer(TINY_TOKENIZER, 110), memory.make("full", 0)

    def look(t):
        return Observation(f"A wall is {t} steps left.", "", "Find the ball.", "Say what!")

    remembered.reset(look(0))
    before, continued, overflown = [], [], []
    for t in range(30):
        prompt = render(remembered.messages(), before)
        continued.append(bool(before) and prompt.ids[: len(before) - 1] == before[:-1])
        overflown.append(prompt.overflow)
        assert len(prompt.ids) <= 110 and prompt.reencoded == (t > 0 and not continued[-1])
        before = [*prompt.ids, *spelled(f"I go {t}"), END]
        response = f"I go {t}"
        remembered.update(replace(step(t), kept_response=response, observation=look(t + 1)))
    first = overflown.index(True)
    assert all(continued[1:first]) and first > 2
    assert 0 < sum(continued[first:]) < len(continued[first:])
