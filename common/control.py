"""Which tokens a chat template marks messages with, and which of them a response may show."""

import re
from contextlib import suppress

from common.chat import END_OF_THOUGHT, THINK
from common.template import CALL

WORD = "answer"
SIGN = re.compile(r"[^\w\s]")  # a tokenizer may have words and blanks among its added tokens


def turn_ends(tokenizer) -> set[int]:
    """Return the ids that the chat template writes behind an assistant's message.

    A base model's own end of a text differs from them. They are none if the template ends messages
    with plain text. Where a token begins with another one, as "<end>\\n" does, both end a turn.
    """
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": WORD}]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception:  # it refuses a dialogue that ends with an answer
        return set()
    behind = text[text.rindex(WORD) + len(WORD) :].lstrip()
    added = getattr(tokenizer, "added_tokens_decoder", {})
    words = {id: token.content for id, token in added.items()}
    return {id for id, word in words.items() if behind.startswith(word) and SIGN.search(word)}


def control_tokens(tokenizer) -> dict[int, str]:
    """Return the tokens that only the chat template may write, with their texts.

    These are the special ones, those that the template names, and longer ones with these in them.
    The marks of reasoning are text.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {})
    template = str(tokenizer.chat_template)
    words = {
        token.content
        for token in added.values()
        if token.special or (token.content in template and SIGN.search(token.content))
    } - {THINK, END_OF_THOUGHT}
    found = re.compile("|".join(["(?!)", *map(re.escape, words)])).search
    return {id: token.content for id, token in added.items() if found(token.content)}


def shown_tokens(tokenizer) -> set[int]:
    """Return the added tokens with which the chat template writes reasoning and tool calls: these
    alone are a part of a response's text, special or not."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    shown = {id for id, token in added.items() if token.content in (THINK, END_OF_THOUGHT)}
    user, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": ""}
    for arguments in ({}, "{}"):  # templates want a mapping or a text
        call = CALL | {"function": {"name": "f", "arguments": arguments}}
        with suppress(Exception):  # templates refuse calls with errors of many types
            plain, calls = (
                tokenizer.apply_chat_template([user, message], tokenize=False)
                for message in (answer, answer | {"tool_calls": [call]})
            )
            shown |= set(tokenizer(calls).input_ids) - set(tokenizer(plain).input_ids)
    return shown & added.keys()
