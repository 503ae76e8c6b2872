"""The environments of a command line: tasks, --prompts, --on-invalid end, what --memory asks."""

from collections.abc import Callable
from functools import partial

import gymnasium

from common.plugins import UserError
from envs import key_of, make_env
from envs.mixture import Mixture, tasks_of
from envs.prompts import filled


def make_variant(
    name: str,
    prompts: dict | None = None,
    on_invalid: str = "default",
    asks: Callable | None = None,
    **options,
):
    """Make the environment `name`, as `envs.make_env` does, or the mixture of tasks that it names.

    prompts: a user's own, in the place of ours; see `envs.prompts`
    on_invalid: "end" ends an episode, as a failure, at a response that names no action
    asks: what `envs.asking` returns for a memory; it is the outermost wrapper
    """
    tasks = tasks_of(name)
    if len(tasks) > 1:
        make = partial(make_variant, prompts=prompts, on_invalid=on_invalid, asks=asks, **options)
        return Mixture(tasks, make)
    [name] = tasks
    env = make_env(name, **options)
    if on_invalid == "end":
        if not getattr(env, "names_actions", False):
            raise UserError(f"--on-invalid end: {name} reads whole messages; leave it out")
        env = EndsWhenInvalid(env)
    if prompts:
        env = OwnPrompts(env, prompts.get(key_of(name), {}))
    return asks(env) if asks else env


class Variant(gymnasium.Wrapper):
    """A wrapper that lets the pool prepare the next episode of what it wraps."""

    def prepare(self, seed: int) -> None:
        prepare = getattr(self.env, "prepare", None)
        if prepare is not None:
            prepare(seed)


class OwnPrompts(Variant):
    """Puts a user's own prompts, with the fields of this turn, in the place of ours."""

    def __init__(self, env: gymnasium.Env, table: dict[str, str]):
        super().__init__(env)
        self.table = table

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        text, info = self.env.reset(seed=seed, options=options)
        return text, self._own(info)

    def step(self, response: str):
        text, reward, terminated, truncated, info = self.env.step(response)
        return text, reward, terminated, truncated, self._own(info)

    def _own(self, info: dict) -> dict:
        return info | filled(self.table, self.env.unwrapped)


class EndsWhenInvalid(Variant):
    """Ends an episode, as a failure, at a response that names no action."""

    def step(self, response: str):
        text, reward, terminated, truncated, info = self.env.step(response)
        if not info["valid"]:  # what the default action did counts for nothing
            reward, terminated = -self.env.format_penalty, True
            metrics = info["metrics"] if "metrics" in info else self.env.episode_metrics()
            info = {**info, "success": False, "metrics": metrics}
        return text, reward, terminated, truncated, info
