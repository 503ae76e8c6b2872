"""The environments by name.

`make_env("babyai-goto")` makes one of ours: a class in a file of its own and a line in ENVS,
imported on demand. `make_env("module:EnvId")` imports a module of the user's and makes a gymnasium
environment with text in and text out, `make_env("tools:module:Class")` one from a class with tools,
and `make_env("agent:module:function")` one from an agent's program. A name in LIBRARIES goes before
a user's module of that name: `make_env("textarena:GuessTheNumber-v0")` makes one of a library.
"""

import difflib
import importlib

from common.plugins import UserError

# The name of an environment is a key of ENVS, or key-task if the class lists `tasks`.
ENVS = {
    "babyai": "envs.games.babyai:BabyAI",
    "baba": "envs.games.babaisai:BabaIsAI",
    "crafter": "envs.games.crafter:Crafter",
    "dialogue-guess": "envs.dialogue.guess:Guess",
    "errands": "envs.games.errands:Errands",
    "gsm8k": "envs.tools.gsm8k:GSM8K",
    "tools-calculator": "envs.tools.calculator:Calculator",
    "tools-shop": "envs.tools.shop:Shop",
    "told": "envs.games.told:Told",
    "toy": "envs.games.toy:Toy",
}
AGENT, TOOLS = "agent:", "tools:"  # names of programs and of classes with tools begin so
FORMS = ("module:EnvId", "tools:module:Class", "agent:module:function")  # of a user's own
# Other libraries' environments are named "library:name": the adapter, and what pip installs.
LIBRARIES = {
    "textarena": ("envs.ecosystems.textarena:TextArena", "textarena==0.7.4"),
    "reasoning-gym": ("envs.ecosystems.reasoning_gym:ReasoningGym", "reasoning-gym==0.1.25"),
    "gem": ("envs.ecosystems.gem:Gem", "gem-llm==0.1.0"),
    "textworld": ("envs.ecosystems.textworld:TextWorld", "textworld==1.7.0"),
    "scienceworld": ("envs.ecosystems.scienceworld:ScienceWorld", "scienceworld==1.2.3"),
    "pettingzoo": ("envs.ecosystems.pettingzoo:PettingZoo", "pettingzoo[classic]==1.27.0"),
    "openenv": ("envs.ecosystems.openenv:OpenEnv", "openenv==0.10.0"),
}
OPEN = {"openenv"}  # libraries in whose names stands a user's own module, or an address


def make_env(name: str, **options):
    """Make the environment `name`; an option that is None is left to the environment.

    format_penalty: subtracted from the reward of a turn whose response names no action
    max_episode_steps: number of turns after which an episode is truncated
    data: file of rows, for an environment that has a `source` of them
    UserError: there is no such environment, or a package that it needs is not installed
    """
    options = {key: value for key, value in options.items() if value is not None}
    if name.startswith(AGENT):
        from envs.agents.agent import AgentEnv

        return AgentEnv(name.removeprefix(AGENT), **options)
    if library(name):
        from envs.ecosystems import make_adapted

        return make_adapted(name, **options)
    if ":" in name:
        from envs.registered import make_foreign

        return make_foreign(name, **options)
    environment, task = find_class(name)
    return environment(*task, **options)


def family(name: str) -> str:
    """Return the family of the environment `name`: "babyai", ..., a library's name for one of its
    environments, "agent", "tools" or "foreign" for a user's own."""
    for prefix in (AGENT, TOOLS):
        if name.startswith(prefix):
            return prefix[:-1]
    return library(name) or ("foreign" if ":" in name else find_class(name)[0].family)


def library(name: str) -> str:
    """Return the library in the name of an environment, "" if there is none."""
    prefix, colon, _ = name.partition(":")
    return prefix if colon and prefix in LIBRARIES else ""


def family_class(family: str) -> type:
    """Return the class of a family, which is named after its module.

    ValueError: there is no such family
    """
    paths = {path.partition(":")[0].rpartition(".")[2]: path for path in ENVS.values()}
    if family not in paths:
        raise UserError(f"unknown family {family!r}; choices: {', '.join(paths)}")
    return load(paths[family])


def key_of(name: str) -> str:
    """Return the key in ENVS of one of our environments."""
    return name if name in ENVS or ":" in name else name.split("-", 1)[0]


def find_class(name: str) -> tuple[type, list[str]]:
    """Return the class behind a name, and the arguments that it takes first: a task or nothing."""
    key, task = key_of(name), [] if name in ENVS else name.split("-", 1)[1:]
    if key in ENVS:
        try:
            environment = load(ENVS[key])
        except ModuleNotFoundError as error:
            raise UserError(f"{name} needs the package {error.name}, please install it") from error
        if (task[0] in environment.tasks) if task else not environment.tasks:
            return environment, task
    near = ", ".join(difflib.get_close_matches(name, names(), 5, 0))
    raise UserError(
        f"unknown environment {name!r}; nearest first: {near}; all: python -m envs; "
        f"one of yours: {', '.join(FORMS)}"
    )


def load(path: str) -> type:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def names() -> list[str]:
    """Return the names of our environments."""
    found = []
    for key, path in ENVS.items():
        try:
            tasks = load(path).tasks
        except ModuleNotFoundError:  # its package is optional
            tasks = ()
        found += [f"{key}-{task}" for task in tasks] or [key]
    return found
