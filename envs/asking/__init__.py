"""What a memory asks of the agent beyond an action: notes, or summaries of what it will forget.

A memory's class names a wrapper of the environment in its attribute `asks`, a class or
"module:Class". The wrapper changes what the agent is asked, takes the text that it writes for
itself, and shows it in later prompts. So what the agent wrote is a part of the environment's state:
it is replayed with the episode, in whatever process the environment lives.
"""

from collections.abc import Callable
from functools import partial

from common.plugins import find
from envs.agents.tokens import TokenCounter
from memory import MEMORIES, make_memory


def asking(environment, generation) -> Callable | None:
    """Return what wraps an environment for the memory that the flags name; None: it only watches.

    The wrapper is called with the environment, a function that makes the run's memory, and a
    `TokenCounter`.
    """
    asks = getattr(find("memory", environment.memory, MEMORIES), "asks", None)
    if asks is None:
        return None
    wrapper = find("wrapper", asks, {}) if isinstance(asks, str) else asks
    keep = environment.history_thinking == "keep"
    memory = partial(make_memory, environment.memory, environment.memory_length, keep)
    tokens = TokenCounter(generation.model, generation.template_kwargs, generation.prompt_limit)
    return partial(wrapper, memory=memory, tokens=tokens)
