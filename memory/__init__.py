"""Which of the past turns the prompt of a turn shows.

A memory has `reset(observation)`, `update(step)` and `messages()`. It knows chat messages and
nothing of tokens (those are made in `memory.chat`) or of any particular environment. A new one is
one file and one line here, or `--memory module:Class`, constructed with the memory length.
"""

import importlib

MEMORIES = {
    "window": "memory.window:WindowMemory",
    "action": "memory.variants:ActionMemory",
    "periodic": "memory.variants:PeriodicMemory",
    "full": "memory.variants:FullMemory",
}
METHODS = ("reset", "update", "messages")


def make(name: str, length: int):
    """The memory `name` (a key of MEMORIES or "module:Class") with memory length n = `length`."""
    if length < 0:
        raise ValueError(f"memory length must be >= 0, got {length}")
    return _load(name)(length)


def _load(name: str) -> type:
    choices = f"choices: {', '.join(MEMORIES)}, or module:Class of your own"
    module_name, _, class_name = MEMORIES.get(name, name).partition(":")
    if not class_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise ValueError(f"unknown memory {name!r}; {choices}")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"memory {name!r} cannot be imported ({error}); {choices}") from error
    memory = getattr(module, class_name, None)
    if memory is None:
        raise ValueError(f"module {module_name!r} has no class {class_name!r}; {choices}")
    if not all(hasattr(memory, method) for method in METHODS):
        raise ValueError(f"memory {name!r} must be a class with {', '.join(METHODS)}; {choices}")
    return memory
