"""The environments by name.

`make_env("babyai-goto")` makes one of ours: a class in a file of its own and a line in ENVS,
imported on demand. `make_env("module:EnvId")` imports a module of the user's and makes a gymnasium
environment with text in and text out.
"""

import difflib
import importlib

# The name of an environment is a key of ENVS, or key-task if the class lists `tasks`.
ENVS = {
    "babyai": "envs.babyai:BabyAI",
    "baba": "envs.babaisai:BabaIsAI",
    "crafter": "envs.crafter:Crafter",
    "tools-shop": "envs.shop:Shop",
    "toy": "envs.toy:Toy",
}


def make_env(name: str, **options):
    """Make the environment `name`; an option that is None is left to the environment.

    format_penalty: subtracted from the reward of a turn whose response names no action
    max_episode_steps: number of turns after which an episode is truncated
    ValueError: there is no such environment, or a package that it needs is not installed
    """
    options = {key: value for key, value in options.items() if value is not None}
    if ":" in name:
        from envs.foreign import make_foreign

        return make_foreign(name, **options)
    environment, task = _find(name)
    return environment(*task, **options)


def family(name: str) -> str:
    """Return the family of the environment `name`: "babyai", ..., or "foreign" for module:EnvId."""
    return "foreign" if ":" in name else _find(name)[0].family


def family_class(family: str) -> type:
    """Return the class of a family, which is named after its module.

    ValueError: there is no such family
    """
    paths = {path.partition(":")[0].rpartition(".")[2]: path for path in ENVS.values()}
    if family not in paths:
        raise ValueError(f"unknown family {family!r}; choices: {', '.join(paths)}")
    return _load(paths[family])


def _find(name: str) -> tuple[type, list[str]]:
    """Return the class behind a name, and the arguments that it takes first: a task or nothing."""
    key, *task = [name] if name in ENVS else name.split("-", 1)
    if key in ENVS:
        try:
            environment = _load(ENVS[key])
        except ModuleNotFoundError as error:
            raise ValueError(f"{name} needs the package {error.name}, please install it") from error
        if (task[0] in environment.tasks) if task else not environment.tasks:
            return environment, task
    names = sorted(_names(), key=lambda known: -difflib.SequenceMatcher(None, name, known).ratio())
    raise ValueError(
        f"unknown environment {name!r}; choices, nearest first: {', '.join(names)}, "
        "or module:EnvId of a gymnasium environment with text in and text out"
    )


def _load(path: str) -> type:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _names() -> list[str]:
    names = []
    for key, path in ENVS.items():
        try:
            tasks = _load(path).tasks
        except ModuleNotFoundError:  # its package is optional
            tasks = ()
        names += [f"{key}-{task}" for task in tasks] or [key]
    return names
