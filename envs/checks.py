"""Checks of --data, --prompts and --group-size against the environment that is played."""

from common.plugins import UserError
from envs import ENVS, find_class, key_of, load
from envs.mixture import one_of, weak_tasks
from envs.prompts import check_fields


def check_data(name: str, data: str | None) -> None:
    """UserError: the environment `name` takes no --data, or cannot read it, or needs it"""
    name = one_of(name)
    source = None if ":" in name else getattr(find_class(name)[0], "source", None)
    if source is not None:
        source(data)
    elif data is not None:
        takers = [key for key in ENVS if hasattr(load(ENVS[key]), "source")]
        raise UserError(f"--data: {name} takes none; those that do: {', '.join(takers)}")


def check_prompts(name: str, prompts: dict[str, dict[str, str]] | None) -> None:
    """UserError: --prompts has words that no environment takes, or none for `name`"""
    if prompts is None:
        return
    name = one_of(name)
    takers = [key for key, path in ENVS.items() if hasattr(load(path), "prompt_fields")]
    choices = f"choices: {', '.join(takers)}"
    for key, table in prompts.items():
        if key not in takers:
            raise UserError(f"--prompts: no environment takes [{key}]; {choices}")
        check_fields(key, table, load(ENVS[key]).prompt_fields)
    if key_of(name) not in takers:
        raise UserError(f"--prompts: {name} takes none, its words are in its class; {choices}")
    if key_of(name) not in prompts:
        raise UserError(f"--prompts: there is no [{key_of(name)}] for {name} in the file")


def check_weak(name: str, group_size: int) -> None:
    """UserError: the environment `name` has tasks marked with =weak, which groups cannot play"""
    if group_size > 1 and weak_tasks(name):
        raise UserError(
            f"--env-name {name}: =weak follows the success of each environment, and a group plays "
            f"one task; it does not go with --group-size {group_size}"
        )
