"""What is left of a current observation that alone exceeds the prompt limit."""

from collections.abc import Callable
from functools import partial

from common.chat import Chat
from common.shorten import shortened


def fit_text(chat: Chat, prompt_of: Callable, most: Callable, prompt_limit: int):
    """Return a Prompt without history whose texts are shortened; None if it never fits.

    prompt_of(messages): returns a Prompt; most: `Renderer.most`
    """
    question = chat.last(0)
    others = [message for message in question if message["role"] != "system"] or question
    longest = max(others, key=lambda message: len(message["content"]))
    for long in ([longest], others):  # if the longest is not enough, all of them
        at_most = max(0, len(longest["content"]) - 1)
        n, prompt = most(partial(_shorter, question, long), at_most, prompt_of)
        if n >= 0:
            return prompt
    if not (chat.now and any(message["role"] != "system" for message in chat.head)):
        return None
    # The agent's own call is too long; without it, its result must not stay.
    prompt = prompt_of(chat.head)
    return prompt if len(prompt.ids) <= prompt_limit else None


def _shorter(messages: list[dict], long: list[dict], n: int) -> list[dict]:
    """Keep at most n characters of each of the messages `long`."""
    return [
        message | {"content": shortened(message["content"], n)}
        if len(message["content"]) > n and any(message is one for one in long)
        else message
        for message in messages
    ]
