"""From chat messages to prompt ids, within the prompt limit.

A prompt that is too long loses its oldest history turns, and then the middle of the current
observation: an environment that once says too much must not end a run of days. Nothing here imports
torch or transformers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from common.chat import THINK, Chat, Sampling, one_call_each, shortened
from common.plugins import UserError
from common.template import check_template, refuses_two_calls
from memory.verbatim import VerbatimMemory

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


def make_render(args, tokenizer, memory) -> "Renderer":
    """Return the Renderer of a command line.

    memory: at the first turn of an episode, whose messages must fit whole and lose nothing, so that
        a limit or a template that cannot work is told before the run begins. A resumed run is in
        the middle of its episodes, and was checked when it began.
    """
    render = Renderer(tokenizer, args.prompt_limit)
    if not args.resume:
        chat = Chat.of(memory.messages())
        program = isinstance(memory, VerbatimMemory)  # which itself says what it remembers
        keeps = args.history_thinking == "keep" and not program
        check_template(render.write, chat, thoughts=keeps)
        render(chat, whole=True)
    return render


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
        self.one_call = refuses_two_calls(tokenizer.apply_chat_template)

    def __call__(self, messages: list[dict], before: Sequence[int] = (), whole=False) -> Prompt:
        """before: ids of the last prompt and its response, if there are any
        whole: refuse what does not fit, instead of leaving something out"""
        before = before[:-1]
        chat, said = Chat.of(messages), self.decode(before) if before else ""
        prompt_of = partial(self._prompt, template=chat.template, before=before, said=said)
        turns = len(chat.turns)
        grows = turns > FIRST_TRY and said and self.write(chat, chat.template).startswith(said)
        n, prompt = self._most(chat.last, turns, prompt_of, turns if grows else FIRST_TRY)
        if n < turns and chat.in_blocks:
            # If one turn were dropped each time, no prompt would begin with the one before. A block
            # is a power of 2, at most half of what fits: it stays the same while n changes little.
            n -= (n - turns) % (1 << max(0, n.bit_length() - 2))
            prompt = prompt_of(chat.last(n)) if n >= 0 else prompt
        if n >= 0:
            return replace(prompt, overflow=n < turns, sampling=chat.sampling)
        question = chat.last(0)
        others = [message for message in question if message["role"] != "system"] or question
        longest = max(others, key=lambda message: len(message["content"]))
        for long in ([longest], others):  # if the longest is not enough, all of them
            short = partial(_shorter, question, long)
            kept, some = self._most(short, len(longest["content"]) - 1, prompt_of)
            if kept >= 0:
                break
        if kept < 0 and chat.now and len(chat.head) > 1:
            # The agent's own call is too long; without it, its result must not stay.
            kept, some = self._most(lambda n: chat.head, 0, prompt_of)
        if whole or kept < 0:
            tokens = f"({len(prompt.ids)} tokens)"
            least = f"the system prompt and the current observation {tokens}"
            limit = f"prompt limit {self.prompt_limit}"
            raise UserError(f"{limit} is below {least}; raise --prompt-limit")
        return replace(some, overflow=turns > 0, shortened=True, sampling=chat.sampling)

    def write(self, messages: list[dict], template: dict) -> str:
        """Return the text of a prompt. template: arguments of the chat template"""
        options = dict(add_generation_prompt=True, tokenize=False, strftime_now=TODAY.strftime)
        messages = one_call_each(messages) if self.one_call else list(messages)
        text = self.tokenizer.apply_chat_template(messages, **options | template)
        # Half of a surrogate pair, from an environment, is not valid Unicode: it becomes "?".
        return text.encode("utf-8", "replace").decode("utf-8")

    def _prompt(self, messages: list[dict], template: dict, before, said: str) -> Prompt:
        text = self.write(messages, template)
        ids = self._continued(text, before, said)
        reencoded = not ids and any(message["role"] == "assistant" for message in messages)
        begun = text.rstrip().endswith(THINK)
        opened = text[text.rindex(THINK) :] if begun else ""
        return Prompt(ids or self.encode(text), reencoded=reencoded, opened=opened)

    def _continued(self, text: str, before, said: str) -> list[int]:
        """Return the ids before, which say what was said, and those of the text that is new; [] if
        the text does not begin with it."""
        if not (said and text.startswith(said)):
            return []
        new = self.encode(text[len(said) :])
        same = self.decode(new) == text[len(said) :]  # some tokenizers put a blank first
        return [*before, *new] if same and len(before) + len(new) <= self.prompt_limit else []

    def _most(self, some: Callable[[int], list], at_most: int, prompt_of, n: int = FIRST_TRY):
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
    # The template writes its own special tokens (also the first), so none are added here.
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        encode = lambda text: tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return encode, lambda ids: tokenizer.decode(ids)
    # The tokenizer's own call spends as much time on its options as this takes for a prompt.
    fast.no_truncation()
    fast.no_padding()
    encode = lambda text: fast.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return encode, partial(fast.decode, skip_special_tokens=False)


def _shorter(messages: list[dict], long: list[dict], n: int) -> list[dict]:
    """Keep at most n characters of each of the messages `long`."""
    return [
        message | {"content": shortened(message["content"], n)}
        if len(message["content"]) > n and any(message is one for one in long)
        else message
        for message in messages
    ]
