"""The messages of a prompt, what of them may be dropped, and the reasoning that they hold.

Turns are dropped whole: an observation never without its answer, a tool's result never without the
call that it answers. Reasoning stands between <think> and </think>, as models write it.
"""

from dataclasses import dataclass, field
from itertools import chain

THINK, END_OF_THOUGHT = "<think>", "</think>"


@dataclass(frozen=True)
class Sampling:
    """How one response is sampled, where that differs from the run's own settings.

    temperature: None takes the run's --temperature
    max_tokens: tokens the response may have; None takes --response-limit
    extra: other options (top_p, a JSON schema, ...). They change the distribution that is sampled
        from, so a response to such a request is not trained on.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    extra: dict = field(default_factory=dict)

    @property
    def trained(self) -> bool:
        """Whether the response is a training sample."""
        return not self.extra


class Chat(list):
    """All messages of a prompt in their order.

    head: what always stays: the system message, the messages that began the episode
    turns: the history, oldest first; each turn is a list of messages that are dropped together
    now: the current observation, which always stays
    template: arguments of the chat template: tools, enable_thinking, ...
    sampling: how the response is sampled
    """

    def __init__(self, head: list, turns: list[list], now: list, template: dict | None = None,
                 sampling: Sampling = Sampling()):  # fmt: skip
        super().__init__(chain(head, *turns, now))
        self.head, self.turns, self.now = head, turns, now
        self.template, self.sampling = template or {}, sampling

    @classmethod
    def of(cls, messages: list[dict], template: dict | None = None) -> "Chat":
        """Return a Chat as it is, and find the turns in another list of messages: pairs of a user's
        and an assistant's message, or, with tools, an assistant's message and all that follows."""
        if isinstance(messages, cls):
            return messages
        first = 1 if messages[0]["role"] == "system" else 0  # where the history begins
        tools = any(message["role"] == "tool" for message in messages)
        begins = "assistant" if tools else "user"
        starts = [k for k in range(first, len(messages)) if messages[k]["role"] == begins]
        starts = starts or [first]
        first = starts[0] if tools else first
        ends = [*starts[1:], len(messages)]
        turns = [messages[a:b] for a, b in zip([first, *starts[1:]], ends, strict=True)]
        return cls(messages[:first], turns[:-1], turns[-1], template)

    def last(self, n: int) -> list[dict]:
        """Return the messages of a prompt with the last n turns of the history."""
        return [*self.head, *chain(*self.turns[len(self.turns) - n :]), *self.now]

    def kept(self, n: int) -> int:
        """Return how many turns stay where only the last n of them fit."""
        return n


def after_thought(text: str) -> int:
    """Return where a response begins to speak or to act: behind its reasoning. That is 0 where it
    has none, and len(text) where the response limit cut the reasoning."""
    end = text.rfind(END_OF_THOUGHT)
    if end >= 0:
        return end + len(END_OF_THOUGHT)
    return len(text) if THINK in text else 0


def in_history(text: str, thoughts: bool) -> str:
    """Return what later prompts show of a response.

    thoughts: keep the reasoning, and close it where the response limit cut it; False: leave it out
    """
    start, end = text.find(THINK), after_thought(text)
    if not end:
        return text
    if thoughts:
        return text if END_OF_THOUGHT in text else f"{text}\n{END_OF_THOUGHT}"
    return text[: max(start, 0)] + text[end:].lstrip()
