"""A memory decides which of the past turns the prompt of a turn shows.

It has `reset(observation)`, `update(step)` and `messages()`. It knows chat messages, but neither
tokens (`memory.render` makes those) nor any particular environment. A new memory takes one file and
one line in MEMORIES, or `--memory module:Class`; it is constructed with the memory length.
"""

from common.plugins import UserError, find

MEMORIES = {
    "window": "memory.window:WindowMemory",
    "action": "memory.variants:ActionMemory",
    "periodic": "memory.variants:PeriodicMemory",
    "full": "memory.variants:FullMemory",
    "notes": "memory.notes:NotesMemory",
    "summary": "memory.summary:SummaryMemory",
    "verbatim": "memory.verbatim:VerbatimMemory",
}


def make(name: str, length: int):
    """Return a memory of n = `length` turns; `name` is a key of MEMORIES or "module:Class"."""
    if length < 0:
        raise UserError(f"memory length must be >= 0, got {length}")
    if name not in MEMORIES:
        from memory.checks import make_users_memory

        return make_users_memory(name, length)
    return find("memory", name, MEMORIES)(length)


def make_memory(name: str, length: int, keep: bool):
    """Return a memory as `make` does. keep: whether it keeps the reasoning of earlier turns"""
    from memory.thoughts import ThoughtMemory

    return ThoughtMemory(make(name, length), keep)


def make_memories(environment, pasts: list[tuple]) -> list:
    """Make a memory for each past: the first observation of an episode and its Steps since."""
    name, length = environment.memory, environment.memory_length
    keep = environment.history_thinking == "keep"
    memories = [make_memory(name, length, keep) for _ in pasts]
    for memory, (first, steps) in zip(memories, pasts, strict=True):
        memory.reset(first)
        for step in steps:
            memory.update(step)
    return memories
