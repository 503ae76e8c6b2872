"""Which pool of environments a command line asks for."""

from collections.abc import Iterable
from functools import partial

from common.execution import execution
from envs import AGENT
from envs.asking import asking
from envs.mixture import tasks_of
from envs.pool.resilient import ResilientPool
from envs.registered import announce_time_limit
from envs.variants import make_variant

AGENT_GRACE_SECONDS = 5.0  # added to an agent's own time limit, before its worker is killed


def make_envs(
    environment, generation, seeds: list[Iterable[int]], first: int = 0, proven: bool = False
) -> ResilientPool:
    """Make the environments that the flags describe, one for each item of `seeds`.

    first, proven: as in `ResilientPool`
    """
    name, limit = environment.env_name, environment.max_episode_steps
    options = dict(
        format_penalty=environment.format_penalty,
        max_episode_steps=limit,
        data=environment.data,
        prompts=environment.prompts,
        on_invalid=environment.on_invalid,
        asks=asking(environment, generation),
    )
    processes, threads, timeout = execution(environment.env_workers)
    if name.startswith(AGENT):
        options |= agent_options(generation, environment.upstream, timeout)
        options["shared"] = len(seeds) > max(1, processes)
        timeout += AGENT_GRACE_SECONDS  # an agent knows the line in which its program hangs
    else:
        for task in tasks_of(name):
            announce_time_limit(task, limit)
        if threads and ":" in name:
            options["own_random"] = False
    return ResilientPool(
        partial(make_variant, name, **options),
        seeds,
        workers=processes,
        timeout=timeout,
        threads=threads,
        first=first,
        proven=proven,
    )


def agent_options(generation, upstream: str | None, timeout: float) -> dict:
    """Return what `envs.agents.agent` must know of the run."""
    return dict(
        timeout=timeout,
        tokenizer=generation.model,
        prompt_limit=generation.prompt_limit,
        template=generation.template_kwargs,
        sampling=generation.endpoint_sampling,
        upstream=upstream,
    )
