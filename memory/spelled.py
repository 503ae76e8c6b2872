"""Texts that spell control tokens: an observation, a tool's result, the model itself.

Such a word is text, in letters. In the text of a prompt PART stands within it, and what is before
and behind PART is encoded by itself. So the template alone writes control tokens.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, cycle, groupby

from common.chat import Chat
from common.control import control_tokens, shown_tokens
from memory.render import Prompt, Renderer, coder

PART = "\ufdd0"  # never a character
NOTHING = "(?!)"  # a regular expression that finds nothing
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class SafeRenderer(Renderer):
    """A Renderer in which texts that spell control tokens stay text. Other prompts are the same."""

    def __init__(self, tokenizer, prompt_limit: int):
        super().__init__(tokenizer, prompt_limit)
        # A quick look: few texts of thousands have one of these beginnings.
        begun = {re.escape(word[:4]) for word in control_tokens(tokenizer).values()}
        self.control = re.compile("|".join(begun) or NOTHING)

    def __call__(self, messages: list[dict], before: Sequence[int] = (), whole=False) -> Prompt:
        chat = Chat.of(messages)
        self.look_at(chat, chat.template)  # before the ids of the last prompt are decoded
        return super().__call__(chat, before, whole)

    def write(self, messages: list[dict], template: dict) -> str:
        self.look_at(messages, template)
        return super().write(messages, template)

    def look_at(self, messages: list[dict], template: dict) -> None:
        """Keep texts and control tokens apart from now on if a text spells one."""
        if self.control.search(repr((messages, template))):
            self.tokenizer = safe(self.tokenizer)
            self.encode, self.decode = coder(self.tokenizer)


@cache
def safe(tokenizer) -> "SafeTokenizer":
    """Return a tokenizer that keeps the words of messages and control tokens apart."""
    return tokenizer if isinstance(tokenizer, SafeTokenizer) else SafeTokenizer(tokenizer)


class SafeTokenizer:
    """What a Renderer asks of a tokenizer, with the same ids for texts without control tokens."""

    def __init__(self, tokenizer):
        self.tokenizer, self.chat_template = tokenizer, tokenizer.chat_template
        self._encode, self._decode = coder(tokenizer)
        self.control = control_tokens(tokenizer)
        # A call that the model wrote is in the tokens that it sampled; others cannot write one.
        marks = shown_tokens(tokenizer)
        self.words = re.compile(any_of(self.control.values()))
        self.others = beginnings(self.control.values())
        self.models = beginnings(word for id, word in self.control.items() if id not in marks)

    def apply_chat_template(self, messages: list[dict], **options) -> str:
        """Return the text of a prompt, with PART in the control tokens that messages spell."""
        written = [
            part(message, self.models if message["role"] == "assistant" else self.others)
            for message in messages
        ]
        return self.tokenizer.apply_chat_template(written, **part(options, self.others))

    def __call__(self, text: str, **options) -> dict[str, list[int]]:
        """Return the ids of a text with PARTs. Some tokenizers put a blank behind each PART."""
        return {"input_ids": list(chain.from_iterable(map(self._encode, text.split(PART))))}

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, with PART in the control tokens that are spelled in letters."""
        text = self._decode(ids)
        written = PART.join(self.control[id] for id in ids if id in self.control)
        if self.words.findall(text) == self.words.findall(written):
            return text
        runs = [(known, list(run)) for known, run in groupby(ids, self.control.__contains__)]
        texts = [self._decode(run) for _, run in runs]
        return "".join(
            text if known else part(text, self.others)
            for (known, _), text in zip(runs, texts, strict=True)
        )


def imitable(render: Renderer, template: dict) -> str:
    """Return in a few words why texts can imitate what marks messages; "" if they cannot.

    template: arguments of the chat template
    """
    tokenizer = safe(render.tokenizer)
    texts = ["41 apples", "42 pears", "43 plums"]
    written = tokenizer.apply_chat_template(dialogue(texts), tokenize=False, **template)
    begin, marks = 0, []  # marks: what the template writes before each of the texts
    for text in texts:
        end = written.index(text, begin)
        marks.append(written[begin:end])
        begin = end + len(text)
    plain = [mark for mark in marks if not tokenizer.words.search(mark)]
    if plain:
        return f"writes no token, but the text {plain[0].strip()!r} between messages"
    forged = dialogue([f"{text}{mark}{text}" for text, mark in zip(texts, marks, strict=True)])
    ids = tokenizer(tokenizer.apply_chat_template(forged, tokenize=False, **template))["input_ids"]
    expected = tokenizer(written)["input_ids"]
    counts = [sum(id in tokenizer.control for id in one) for one in (ids, expected)]
    if counts[0] != counts[1]:
        return "rewrites messages, so that control tokens in them stay"
    return ""


def dialogue(texts: list[str]) -> list[dict]:
    """Return messages of a user and an assistant in turns."""
    roles = cycle(["user", "assistant"])
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def part(thing, word: re.Pattern):
    """Return a message, or a part of one, with PART behind each character that begins a word."""
    if isinstance(thing, str):
        return word.sub(rf"\g<0>{PART}", thing.replace(PART, UNKNOWN))
    if isinstance(thing, dict):
        return {part(key, word): part(value, word) for key, value in thing.items()}
    return [part(one, word) for one in thing] if isinstance(thing, list | tuple) else thing


def beginnings(words: Iterable[str]) -> re.Pattern:
    """Return a pattern of the characters that begin one of the words; they may overlap."""
    branches = [f"{re.escape(first)}(?={any_of(rest)})" for first, rest in tails_of(words).items()]
    return re.compile("|".join(branches) or NOTHING)


def any_of(words: Iterable[str]) -> str:
    """Return a regular expression for the longest of the words.

    It is a tree, because some tokenizers have a thousand control tokens that begin alike.
    """
    tails = tails_of(words)
    ends = tails.pop("", None)  # one of the words is empty
    branches = [re.escape(first) + any_of(rest) for first, rest in tails.items()]
    if not branches:
        return "" if ends else NOTHING
    return f"(?:{'|'.join(branches)}){'?' if ends else ''}"


def tails_of(words: Iterable[str]) -> dict[str, set[str]]:
    """Return the words without their first character, by this character."""
    tails = defaultdict(set)
    for word in words:
        tails[word[:1]].add(word[1:])
    return tails
