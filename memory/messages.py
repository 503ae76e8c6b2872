"""The messages of a prompt, and what of them may be dropped if they are too long.

Turns are dropped whole: an observation never without its answer, a tool's result never without the
call that it answers.
"""

from itertools import chain

THINK, END_OF_THOUGHT = "<think>", "</think>"


class Chat(list):
    """All messages of a prompt in their order.

    head: what always stays: the system message, the messages that began the episode
    turns: the history, oldest first; each turn is a list of messages that are dropped together
    now: the current observation, which always stays
    template: arguments of the chat template: tools, enable_thinking, ...
    """

    def __init__(self, head: list, turns: list[list], now: list, template: dict | None = None):
        super().__init__(chain(head, *turns, now))
        self.head, self.turns, self.now, self.template = head, turns, now, template or {}

    @classmethod
    def of(cls, messages: list[dict], template: dict | None = None) -> "Chat":
        """Find the turns in a list of messages: pairs of a user's and an assistant's message, or,
        where there are tools, an assistant's message with all that follows it."""
        first = 1 if messages[0]["role"] == "system" else 0  # where the history begins
        tools = any(message["role"] == "tool" for message in messages)
        begins = "assistant" if tools else "user"
        places = [k for k in range(first, len(messages)) if messages[k]["role"] == begins]
        places = places or [first]
        first = places[0] if tools else first
        ends = [*places[1:], len(messages)]
        turns = [messages[a:b] for a, b in zip([first, *places[1:]], ends, strict=True)]
        return cls(messages[:first], turns[:-1], turns[-1], template)

    def last(self, n: int) -> list[dict]:
        """Return the messages of a prompt with the last n turns of the history."""
        return [*self.head, *chain(*self.turns[len(self.turns) - n :]), *self.now]


def tidy(text: str, thoughts: bool) -> str:
    """Return what later prompts show of a response whose reasoning stands between <think> tags.

    thoughts: keep the reasoning, and close it where the response limit cut it; False: leave it out
    """
    start, end = text.find(THINK), text.rfind(END_OF_THOUGHT)
    if start < 0:
        return text
    if thoughts:
        return text if end >= 0 else f"{text}\n{END_OF_THOUGHT}"
    return text[:start] + (text[end + len(END_OF_THOUGHT) :].lstrip() if end >= 0 else "")
