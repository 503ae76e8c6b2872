"""A memory decides which of the past turns the prompt of a turn shows.

It has `reset(observation)`, `update(step)` and `messages()`. It knows chat messages, but neither
tokens (`memory.chat` makes those) nor any particular environment. A new memory takes one file and
one line in MEMORIES, or `--memory module:Class`; it is constructed with the memory length.
"""

from storage.named import find

MEMORIES = {
    "window": "memory.window:WindowMemory",
    "action": "memory.variants:ActionMemory",
    "periodic": "memory.variants:PeriodicMemory",
    "full": "memory.variants:FullMemory",
}
METHODS = ("reset", "update", "messages")


def make_memories(args, pasts: list[tuple]) -> list:
    """Make a memory for each past: the first observation of an episode and its Steps since."""
    memories = [make(args.memory, args.memory_length) for _ in pasts]
    for memory, (first, steps) in zip(memories, pasts, strict=True):
        memory.reset(first)
        for step in steps:
            memory.update(step)
    return memories


def make(name: str, length: int):
    """Return a memory of n = `length` turns; `name` is a key of MEMORIES or "module:Class"."""
    if length < 0:
        raise ValueError(f"memory length must be >= 0, got {length}")
    memory = find("memory", name, MEMORIES)
    if not all(hasattr(memory, method) for method in METHODS):
        needs, ours = ", ".join(METHODS), ", ".join(MEMORIES)
        raise ValueError(f"memory {name!r} must be a class with {needs}; choices: {ours}")
    return memory(length)
