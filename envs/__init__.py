"""The environments by name.

`make_env("babyai-goto")` makes one of the families below, which are imported when asked for.
`make_env("module:EnvId")` imports `module` and makes a gymnasium environment with text in and text
out. A new family is one file and one line in ENVS.
"""

import difflib
import importlib

# With TASKS in its module the names are prefix-task and the class takes the task first.
ENVS = {
    "babyai": "envs.babyai:BabyAI",
    "baba": "envs.babaisai:BabaIsAI",
    "crafter": "envs.crafter:Crafter",
    "toy": "envs.toy:Toy",
}


def make_env(name: str, **options):
    """Make the environment `name`; an option that is None is left to the environment.

    format_penalty: added to the reward of a turn without a valid action
    max_episode_steps: turns until an episode is truncated
    ValueError: there is no such environment, or a package that it needs is not installed
    """
    options = {key: value for key, value in options.items() if value is not None}
    if ":" in name:
        from envs.foreign import make_foreign

        return make_foreign(name, **options)
    environment, task = _find(name)
    return environment(*task, **options)


def family(name: str) -> str:
    """The family of `name` as in envs.actions; "foreign" for module:EnvId."""
    return "foreign" if ":" in name else _find(name)[0].family


def _find(name: str) -> tuple[type, list[str]]:
    """The class behind a name, and the task for it if it has several."""
    prefix, *task = name.split("-", 1)
    if prefix in ENVS:
        try:
            environment, tasks = _load(prefix)
        except ModuleNotFoundError as error:
            raise ValueError(f"{name} needs the package {error.name}, please install it") from error
        if (task[0] in tasks) if task else not tasks:
            return environment, task
    names = sorted(_names(), key=lambda known: -difflib.SequenceMatcher(None, name, known).ratio())
    raise ValueError(
        f"unknown environment {name!r}; choices, nearest first: {', '.join(names)}, "
        "or module:EnvId of a gymnasium environment with text in and text out"
    )


def _load(prefix: str) -> tuple[type, tuple[str, ...]]:
    module_name, class_name = ENVS[prefix].split(":")
    module = importlib.import_module(module_name)
    return getattr(module, class_name), tuple(getattr(module, "TASKS", ()))


def _names() -> list[str]:
    names = []
    for prefix in ENVS:
        try:
            tasks = _load(prefix)[1]
        except ModuleNotFoundError:  # its package is optional
            tasks = ()
        names += [f"{prefix}-{task}" for task in tasks] or [prefix]
    return names
