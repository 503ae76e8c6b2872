"""From chat messages to prompt ids, within the prompt limit.

A prompt that is too long loses its oldest history turns, and then the middle of the current
observation: an environment that once says too much must not end a run of days.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from common.chat import THINK, Chat, Sampling
from common.plugins import UserError

TODAY = datetime(2024, 7, 26)  # in templates that print the date: prompts must not change daily
FIRST_TRY = 8  # history turns; up to so many are tokenised once, if they fit


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    overflow: bool = False  # whether history was dropped to keep the prompt limit
    shortened: bool = False  # whether the middle of the current observation was left out
    reencoded: bool = False  # whether earlier responses are in other tokens than were sampled
    opened: str = ""  # what the chat template has written of the response: "<think>\n" or nothing
    sampling: Sampling = Sampling()  # how the response is sampled


class Renderer:
    """Makes messages into a Prompt of at most `prompt_limit` tokens.

    A prompt whose text begins with the last prompt and its response begins with their ids, too: the
    history stays as it was sampled. Its text, encoded anew, may be other tokens. Only the token
    that ended the response is encoded with what follows, as the template wants it.

    ValueError: there is no chat template; when it is called: what must stay is too long
    """

    def __init__(self, tokenizer, prompt_limit: int):
        if getattr(tokenizer, "chat_template", None) is None:
            name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
            raise UserError(f"the tokenizer {name!r} has no chat template; use an instruct model")
        self.tokenizer, self.prompt_limit = tokenizer, prompt_limit
        self.encode, self.decode = coder(tokenizer)

    def __call__(self, messages: list[dict], before: Sequence[int] = (), whole=False) -> Prompt:
        """Return the prompt of some messages.

        before: ids of the last prompt and its response, if there are any
        whole: refuse messages that do not fit, instead of dropping or shortening some
        """
        chat, before = Chat.of(messages), before[:-1]
        known = self.decode(before) if before else ""
        prompt_of = partial(self._prompt, template=chat.template, before=before, known=known)
        n, prompt = self._fit_turns(chat, prompt_of, known)
        if n >= 0:
            return replace(prompt, overflow=n < len(chat.turns), sampling=chat.sampling)
        if not whole:
            from memory.shorten import fit_text  # rarely: an environment says too much

            short = fit_text(chat, prompt_of, self.most, self.prompt_limit)
        if whole or short is None:
            least = f"the system prompt and the current observation ({len(prompt.ids)} tokens)"
            raise UserError(
                f"prompt limit {self.prompt_limit} is below {least}; raise --prompt-limit"
            )
        return replace(short, overflow=bool(chat.turns), shortened=True, sampling=chat.sampling)

    def _fit_turns(self, chat: Chat, prompt_of: Callable, known: str) -> tuple[int, Prompt]:
        """Return the number of turns that stay, and their Prompt; -1 if not even none of them fit.

        known: the text of the prompt before and of its response
        """
        turns = len(chat.turns)
        # A prompt that extends the last one probably fits whole, and is cheap with its ids.
        grows = turns > FIRST_TRY and known and self.write(chat, chat.template).startswith(known)
        n, prompt = self.most(chat.last, turns, prompt_of, turns if grows else FIRST_TRY)
        kept = chat.kept(n) if 0 <= n < turns else n
        return (n, prompt) if kept == n else (kept, prompt_of(chat.last(kept)))

    def write(self, messages: list[dict], template: dict) -> str:
        """Return the text of a prompt. template: arguments of the chat template"""
        options = dict(add_generation_prompt=True, tokenize=False, strftime_now=TODAY.strftime)
        messages = list(messages)
        if any(len(message.get("tool_calls", ())) > 1 for message in messages):
            from common.template import with_calls_apart  # some templates refuse them together

            messages = with_calls_apart(messages, self.tokenizer.apply_chat_template)
        text = self.tokenizer.apply_chat_template(messages, **options | template)
        # Half of a surrogate pair, from an environment, is not valid Unicode: it becomes "?".
        return text.encode("utf-8", "replace").decode("utf-8")

    def _prompt(self, messages: list[dict], template: dict, before, known: str) -> Prompt:
        text = self.write(messages, template)
        ids = self._continued(text, before, known)
        reencoded = not ids and any(message["role"] == "assistant" for message in messages)
        begun = text.rstrip().endswith(THINK)
        opened = text[text.rindex(THINK) :] if begun else ""
        return Prompt(ids or self.encode(text), reencoded=reencoded, opened=opened)

    def _continued(self, text: str, before, known: str) -> list[int]:
        """Return the ids `before`, whose text is `known`, and those of the rest of the text; [] if
        the text does not begin with it."""
        if not (known and text.startswith(known)):
            return []
        new, last = self.encode(text[len(known) :]), before[-1:]
        # Some tokenizers put a blank first, and decode it only behind another token.
        same = self.decode([*last, *new]) == self.decode(last) + text[len(known) :]
        return [*before, *new] if same and len(before) + len(new) <= self.prompt_limit else []

    def most(self, some: Callable[[int], list], at_most: int, prompt_of, n: int = FIRST_TRY):
        """Return the largest n <= at_most for which the messages some(n) keep the limit, and their
        Prompt; -1 and the Prompt of some(0) if even these are too long. n: what is tried first"""
        # n is doubled, then bisected, so the work grows with the limit, not with what is dropped.
        fits, best, most, n = -1, None, at_most, min(at_most, n)
        while fits < most:
            prompt = prompt_of(some(n))
            if len(prompt.ids) <= self.prompt_limit:
                fits, best = n, prompt
            else:
                most = n - 1
            growing = most == at_most  # nothing has been too long yet
            n = min(at_most, 2 * n) if growing else (fits + most + 1) // 2
        return fits, best if fits >= 0 else prompt


def coder(tokenizer) -> tuple[Callable[[str], list[int]], Callable[[Sequence[int]], str]]:
    """Return what makes text into ids, and ids into text, with all special tokens."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        return partial(_encode, tokenizer), tokenizer.decode
    fast.no_truncation()
    fast.no_padding()
    return partial(_encode_fast, fast), partial(fast.decode, skip_special_tokens=False)


# The template writes its own special tokens (also the first), so none are added here.


def _encode(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def _encode_fast(fast, text: str) -> list[int]:
    # The tokenizer's own call spends as much time on its options as this takes for a prompt.
    return fast.encode_batch_fast([text], add_special_tokens=False)[0].ids
