"""Lets a scripted player that reads its prompts play with a memory."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import gymnasium

from envs.asking import asking
from envs.text_env import Step, act, begin
from envs.variants import OwnPrompts
from memory import make_memory


def remembering(env: gymnasium.Env, name: str, length: int, table: dict | None = None) -> tuple:
    """Return the environment as it is with a memory, and this memory.

    table: a user's own prompts, see `envs.prompts`
    """
    flags = SimpleNamespace(memory=name, memory_length=length, history_thinking="keep")
    no_limit = SimpleNamespace(model="", template_kwargs={}, prompt_limit=10**9)
    asks = asking(flags, no_limit)
    env = OwnPrompts(env, table) if table else env
    return asks(env) if asks else env, make_memory(name, length, keep=True)


def episode(player, env: gymnasium.Env, memory, seed: int) -> Iterator[tuple[list, str, Step]]:
    """Yield the messages of a prompt, the response to learn and the Step of every turn.

    player: `respond(messages)` returns the response to learn and the one to execute
    """
    memory.reset(begin(env, seed))
    player.start()
    done = False
    while not done:
        messages = memory.messages()
        learnt, executed = player.respond(messages)
        step = act(env, executed)
        yield messages, learnt, step
        memory.update(step)
        done = step.done


def demonstrations(player, episodes: int, seed: int, memories: Iterable, table=None) -> list:
    """Return (messages, response) of every turn. memories: (name, length), taken in turn"""
    played = [remembering(player.env, name, length, table) for name, length in memories]
    turns = []
    for k in range(episodes):
        env, memory = played[k % len(played)]
        turns += [turn[:2] for turn in episode(player, env, memory, seed * 100_003 + k)]
    return turns
