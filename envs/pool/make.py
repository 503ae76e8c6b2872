"""Which pool of environments a command line asks for."""

from collections.abc import Iterable
from functools import partial

from common.execution import execution
from envs import AGENT
from envs.foreign import tell_time_limit
from envs.pool.resilient import ResilientPool
from envs.variants import make_variant

AGENT_GRACE_SECONDS = 5.0  # added to an agent's own time limit, before its worker is killed


def make_envs(
    args, seeds: list[Iterable[int]], first: int = 0, proven: bool = False
) -> ResilientPool:
    """Make the environments of a command line, one for each item of `seeds`."""
    options = dict(
        format_penalty=args.format_penalty,
        max_episode_steps=args.max_episode_steps,
        data=args.data,
        prompts=args.prompts,
        on_invalid=args.on_invalid,
    )
    processes, threads, timeout = execution(args.env_workers)
    if args.env_name.startswith(AGENT):
        options |= agent_options(args, timeout)
        timeout += AGENT_GRACE_SECONDS  # an agent knows the line in which its program hangs
    else:
        tell_time_limit(args.env_name, args.max_episode_steps)
        if threads and ":" in args.env_name:
            options["own_random"] = False
    return ResilientPool(
        partial(make_variant, args.env_name, **options),
        seeds,
        workers=processes,
        timeout=timeout,
        threads=threads,
        first=first,
        proven=proven,
    )


def agent_options(args, timeout: float) -> dict:
    """Return what `envs.agents.agent` must know of the run."""
    return dict(
        timeout=timeout,
        tokenizer=args.model,
        prompt_limit=args.prompt_limit,
        template=args.template_kwargs,
        sampling=args.endpoint_sampling,
        upstream=args.upstream,
    )
