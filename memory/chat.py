"""From chat messages to prompt ids, within the prompt limit.

A prompt that is too long loses its oldest history turns, and then the middle of the current
observation: an environment that once says too much must not end a run of days. Nothing here imports
torch or transformers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from memory.messages import Chat

TODAY = datetime(2024, 7, 26)  # in templates that print the date: prompts must not change daily
FIRST_TRY = 8  # history turns; up to so many are tokenised once, if they fit
MARK = "\n[... {} characters are left out here ...]\n"


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    overflow: bool  # whether history was dropped to keep the prompt limit
    shortened: bool = False  # whether the middle of the current observation was left out


def make_render(tokenizer, prompt_limit: int, memory=None) -> Callable[..., Prompt]:
    """Return `render(messages) -> Prompt` of at most `prompt_limit` tokens.

    memory: at the first turn of an episode, where its messages must fit whole, so that too small a
        limit is told before the run begins; None: a resumed run, in the middle of its episodes
    ValueError: they do not; there is no chat template; from `render`: what must stay is too long
    """
    if getattr(tokenizer, "chat_template", None) is None:
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        raise ValueError(f"the tokenizer {name!r} has no chat template; use an instruct model")

    options = dict(add_generation_prompt=True, tokenize=False, strftime_now=TODAY.strftime)

    def tokenise(messages: list[dict], template: dict) -> list[int]:
        # The template writes its own special tokens (also the first), so none are added here.
        text = tokenizer.apply_chat_template(messages, **options | template)
        # Half of a surrogate pair, from an environment, is not valid Unicode: it becomes "?".
        text = text.encode("utf-8", "replace").decode("utf-8")
        return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    def render(messages: list[dict], whole: bool = False) -> Prompt:
        chat = messages if isinstance(messages, Chat) else Chat.of(messages)
        ids_of = lambda n: tokenise(chat.last(n), chat.template)
        turns = len(chat.turns)
        n, ids = _most(ids_of, turns, prompt_limit)
        if n >= 0:
            return Prompt(ids, overflow=n < turns)
        *before, question = chat.last(0)
        said = question["content"]
        shorter = lambda n: [*before, question | {"content": _shortened(said, n)}]
        ids_of = lambda n: tokenise(shorter(n), chat.template)
        kept, some = _most(ids_of, len(said) - 1, prompt_limit)
        if whole or kept < 0:
            least = f"the system prompt and the current observation ({len(ids)} tokens)"
            raise ValueError(f"prompt limit {prompt_limit} is below {least}; raise --prompt-limit")
        return Prompt(some, overflow=turns > 0, shortened=True)

    if memory is not None:
        render(memory.messages(), whole=True)
    return render


def _shortened(text: str, n: int) -> str:
    """Return the first and the last n / 2 characters, around a mark."""
    tail = n // 2
    return text[: n - tail] + MARK.format(len(text) - n) + text[len(text) - tail :]


def _most(tokenise: Callable[[int], list[int]], at_most: int, limit: int) -> tuple[int, list]:
    """Return the largest n <= at_most for which tokenise(n) keeps the limit, and its ids; -1 and
    the ids of n = 0 if even these are too long."""
    # n is doubled, then bisected, so the work grows with the limit and not with what is dropped.
    fits, best, most, n = -1, [], at_most, min(at_most, FIRST_TRY)
    while fits < most:
        ids = tokenise(n)
        if len(ids) <= limit:
            fits, best = n, ids
        else:
            most = n - 1
        growing = most == at_most  # nothing has been too long yet
        n = min(at_most, 2 * n) if growing else (fits + most + 1) // 2
    return fits, best if fits >= 0 else ids
