"""A memory decides which of the past turns the prompt of a turn shows.

It has `reset(observation)`, `update(step)` and `messages()`. It knows chat messages, but neither
tokens (`memory.render` makes those) nor any particular environment. A new memory takes one file and
one line in MEMORIES, or `--memory module:Class`; it is constructed with the memory length.
"""

from dataclasses import replace

from common.chat import Chat, is_message, tidy
from common.plugins import UserError, check_call, defined_at, find

MEMORIES = {
    "window": "memory.window:WindowMemory",
    "action": "memory.variants:ActionMemory",
    "periodic": "memory.variants:PeriodicMemory",
    "full": "memory.variants:FullMemory",
    "verbatim": "memory.verbatim:VerbatimMemory",
}
METHODS = dict(reset=("self", "observation"), update=("self", "step"), messages=("self",))


def make_memories(args, pasts: list[tuple]) -> list:
    """Make a memory for each past: the first observation of an episode and its Steps since."""
    settings = args.memory, args.memory_length, args.history_thinking == "keep"
    memories = [make(*settings) for _ in pasts]
    for memory, (first, steps) in zip(memories, pasts, strict=True):
        memory.reset(first)
        for step in steps:
            memory.update(step)
    return memories


def make(name: str, length: int, thoughts: bool = True):
    """Return a memory of n = `length` turns; `name` is a key of MEMORIES or "module:Class".

    thoughts: whether later prompts show what the agent thought, see `common.chat.tidy`
    """
    if length < 0:
        raise UserError(f"memory length must be >= 0, got {length}")
    memory = find("memory", name, MEMORIES)
    if not all(callable(getattr(memory, method, None)) for method in METHODS):
        line = f"memory {name!r} must be a class with {', '.join(METHODS)}"
        raise UserError(f"{defined_at(memory)}{line}; choices: {', '.join(MEMORIES)}")
    check_call(memory, "length")
    for method, words in METHODS.items():
        check_call(getattr(memory, method), *words)

    class CheckedMemory(memory):
        def reset(self, observation) -> None:
            self._now = observation
            super().reset(observation)

        def update(self, step) -> None:
            if step.fault:  # it has shown nothing new: V of what it showed last stands for the rest
                return
            self._now = step.observation
            super().update(_tidied(step, thoughts))

        def messages(self) -> Chat:
            messages = super().messages()
            if not (isinstance(messages, list) and messages and all(map(is_message, messages))):
                line = f"{memory.__name__}.messages returned {messages!r:.80}; it must return dicts"
                raise UserError(f"{defined_at(memory.messages)}{line} of two texts, role, content")
            chat = Chat.of(messages, self._now.template)
            chat.sampling = self._now.sampling
            return chat

    return CheckedMemory(length)


def _tidied(step, thoughts: bool):
    reply = step.reply and step.reply | {"content": tidy(step.reply["content"], thoughts)}
    said = tidy(step.said, thoughts)
    same = (said, reply) == (step.said, step.reply)
    return step if same else replace(step, said=said, reply=reply)
