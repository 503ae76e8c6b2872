"""What an agent wrote is replayed with its episode: in a state that is resumed nothing differs."""

from functools import partial
from types import SimpleNamespace

import pytest

import memory
from envs.asking import asking
from envs.pool.resilient import ResilientPool
from envs.pool.serial import training_seeds
from envs.variants import make_variant
from recipes import TINY

WRITES = [
    "THINK: a\nNOTES: one two\nSUMMARY: first\nACTION: red",
    "ACTION: green",
    f"NOTES: {'many words ' * 300}\nSUMMARY: {'long ' * 9}\nACTION: dance",
    "THINK: b\nNOTES: short\nACTION: pass",
]
GENERATION = SimpleNamespace(model=str(TINY), template_kwargs={}, prompt_limit=400)


def make_pool(pool, flags, workers: int) -> ResilientPool:
    make = partial(make_variant, "toy", asks=asking(flags, GENERATION))
    return pool(make, training_seeds(0, range(2)), workers)


@pytest.mark.parametrize(
    ("name", "length", "workers"),
    [("notes", 1, 0), ("notes", 1, 1), ("summary", 2, 0), ("summary", 0, 0)],
)
def test_an_episode_that_goes_on_elsewhere(pool, name, length, workers):
    flags = SimpleNamespace(memory=name, memory_length=length, history_thinking="keep")
    whole = make_pool(pool, flags, 0)
    memories = memory.make_memories(flags, whole.resume(None))
    for turn in range(14):  # through several episodes
        state = whole.state_dict()
        if workers == 0 or turn == 3:  # processes start slowly
            resumed = make_pool(pool, flags, workers)
            others = memory.make_memories(flags, resumed.resume(state))
            prompts = [m.messages() for m in memories]
            assert [m.messages() for m in others] == prompts
            resumed.close()
        for i in range(2):
            whole.send(i, WRITES[(turn + i) % 4])
        for i, step in [pair for _ in range(2) for pair in whole.poll()]:
            memories[i].update(step)
            if step.first is not None:
                memories[i].reset(step.first)
