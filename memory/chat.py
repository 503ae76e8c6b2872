"""From chat messages to prompt ids, within the prompt limit.

A prompt that is too long loses its oldest history turns, never the system message, the current
observation or the generation prompt. One trap remains for whoever picks the model: some templates
(Qwen3's) strip reasoning between <think> tags from earlier assistant messages, and the model would
not see what it thought. The tokenizer is passed in; nothing here imports torch or transformers.
"""

from collections.abc import Callable
from dataclasses import dataclass

FIRST_TRY = 8  # history turns; up to so many are tokenised once, if they fit


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    overflow: bool  # whether history was dropped to keep the prompt limit


def make_render(tokenizer, prompt_limit: int) -> Callable[[list[dict]], Prompt]:
    """Return `render(messages) -> Prompt` of at most `prompt_limit` tokens.

    ValueError: the tokenizer has no chat template; from `render`: a prompt is too long even
        without history
    """
    if getattr(tokenizer, "chat_template", None) is None:
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        raise ValueError(f"the tokenizer {name!r} has no chat template; use an instruct model")

    def tokenise(messages: list[dict]) -> list[int]:
        # The template writes its own special tokens (also the first), so none are added here.
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        # Half of a surrogate pair, from an environment, is not valid Unicode: it becomes "?".
        text = text.encode("utf-8", "replace").decode("utf-8")
        return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    def render(messages: list[dict]) -> Prompt:
        start = 1 if messages[0]["role"] == "system" else 0
        system, rest = messages[:start], messages[start:]  # rest: history, then the question
        turns = len(rest) // 2
        n, ids = _most_turns(lambda n: tokenise(system + rest[-2 * n - 1 :]), turns, prompt_limit)
        return Prompt(ids, overflow=n < turns)

    return render


def _most_turns(tokenise: Callable[[int], list[int]], turns: int, limit: int) -> tuple[int, list]:
    """Return the largest n <= turns for which tokenise(n) keeps the limit, and its ids.

    n is doubled, then bisected, so the work grows with the limit and not with the whole history.
    ValueError: even n = 0 is too long
    """
    fits, best, at_most, n = -1, [], turns, min(turns, FIRST_TRY)
    while fits < at_most:
        ids = tokenise(n)
        if len(ids) <= limit:
            fits, best = n, ids
        else:
            at_most = n - 1
        growing = at_most == turns  # nothing has been too long yet
        n = min(turns, 2 * n) if growing else (fits + at_most + 1) // 2
    if fits < 0:
        least = f"the system prompt and the current observation ({len(ids)} tokens)"
        raise ValueError(f"prompt limit {limit} is below {least}; raise --prompt-limit")
    return fits, best
