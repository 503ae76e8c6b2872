"""An environment of verifiers as an agent's program: `agent:verifiers:my-env`.

The name is that of an installed environment: a module with `load_environment`. verifiers sends the
requests, so its prompts, tools and limits of turns apply, and its rubric pays at the end.
"""

import functools
import logging
import random
from importlib import metadata

import verifiers
from openai import AsyncOpenAI

from envs.ecosystems import CannotMake

try:
    import datasets
    from verifiers.clients import OpenAIChatCompletionsClient
except ModuleNotFoundError as error:
    version = f"verifiers {metadata.version('verifiers')}"
    message = f"{version} plays no environments with load_environment: pip install 'verifiers<0.4'"
    raise CannotMake(message) from error

datasets.disable_progress_bars()
logging.getLogger("verifiers").setLevel(logging.CRITICAL)  # our one line tells its errors


@functools.cache  # all agents of a process share it
def program(name: str):
    """Return the program. The seed of an episode chooses a row of the training data."""
    env = verifiers.load_environment(name)
    rows = env.get_dataset()

    async def solve(seed, base_url, api_key, reward):
        row = rows[random.Random(seed).randrange(len(rows))]
        # left open, its connections would complain of the closed event loop on the console
        async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
            asking = OpenAIChatCompletionsClient(client)
            played = await env.run_rollout(row, asking, "policy", {})
        if played.get("error"):
            raise RuntimeError(str(played["error"]))
        return dict(reward=played["reward"], metrics=played["metrics"])

    return solve
