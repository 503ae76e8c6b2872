"""The text of responses where it is not simply the text of their tokens, and what it leaves out."""

from collections.abc import Callable
from itertools import accumulate

from common.control import shown_tokens


def hidden_tokens(tokenizer) -> set[int]:
    """Return the special tokens that the text of a response leaves out.

    These are all but those with which the chat template writes tool calls and reasoning: an
    environment has to see tool calls.
    """
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {id for id, token in added.items() if token.special}
    return special - shown_tokens(tokenizer)


def split_text(decode: Callable[[list[int]], str], ids: list[int]) -> list[str]:
    """Return the text that each token adds to the text before it. If several tokens make one
    character, the last of them adds it, also if the response limit cuts the character."""
    # Tokens are decoded after one that comes before them, because a first word may lose its space.
    pieces, before, begin = [], 0, 0  # characters begin at the tokens `before` and `begin`
    for end in range(1, len(ids) + 1):
        known = decode(ids[before:begin])
        now = decode(ids[before:end])
        whole = not now.endswith("\N{REPLACEMENT CHARACTER}") or end == len(ids)
        pieces.append(now[len(known) :] if whole else "")
        if whole:
            before, begin = begin, end
    return pieces


def action_token(pieces: list[str], text: str, action_at: int) -> int:
    """Return the index of the token that contains character `action_at` of the text, or
    len(pieces) if the text ends before it. pieces: text of each token"""
    if action_at >= len(text):
        return len(pieces)
    return sum(end <= action_at for end in accumulate(map(len, pieces)))
