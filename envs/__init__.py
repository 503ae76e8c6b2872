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
from envs.prompts import check_fields

# The name of an environment is a key of ENVS, or key-task if the class lists `tasks`.
ENVS = {
    "babyai": "envs.games.babyai:BabyAI",
    "baba": "envs.games.babaisai:BabaIsAI",
    "crafter": "envs.games.crafter:Crafter",
    "dialogue-guess": "envs.dialogue.guess:Guess",
    "gsm8k": "envs.tools.gsm8k:GSM8K",
    "tools-calculator": "envs.tools.calculator:Calculator",
    "tools-shop": "envs.tools.shop:Shop",
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
}


def make_env(name: str, prompts: dict | None = None, on_invalid: str = "default", **options):
    """Make the environment `name`; an option that is None is left to the environment.

    format_penalty: subtracted from the reward of a turn whose response names no action
    max_episode_steps: number of turns after which an episode is truncated
    data: file of rows, for an environment that has a `source` of them
    prompts: a user's own, in the place of ours; see `envs.prompts`
    on_invalid: "end" ends an episode, as a failure, at a response that names no action
    ValueError: there is no such environment, or a package that it needs is not installed
    """
    env = _make(name, {key: value for key, value in options.items() if value is not None})
    if prompts and _key(name) in prompts:
        env.prompts = prompts[_key(name)]
    if on_invalid == "end":
        if getattr(env, "ends_when_invalid", None) is None:
            raise UserError(f"--on-invalid end: {name} reads whole messages; leave it out")
        env.ends_when_invalid = True
    return env


def _make(name: str, options: dict):
    if name.startswith(AGENT):
        from envs.agents.agent import AgentEnv

        return AgentEnv(name.removeprefix(AGENT), **options)
    if library(name):
        from envs.ecosystems import make_adapted

        return make_adapted(name, **options)
    if ":" in name:
        from envs.foreign import make_foreign

        return make_foreign(name, **options)
    environment, task = _find(name)
    return environment(*task, **options)


def family(name: str) -> str:
    """Return the family of the environment `name`: "babyai", ..., a library's name for one of its
    environments, "agent", "tools" or "foreign" for a user's own."""
    for prefix in (AGENT, TOOLS):
        if name.startswith(prefix):
            return prefix[:-1]
    return library(name) or ("foreign" if ":" in name else _find(name)[0].family)


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
    return _load(paths[family])


def check_data(name: str, data: str | None) -> None:
    """ValueError: the environment `name` takes no --data, or cannot read it, or needs it"""
    source = None if ":" in name else getattr(_find(name)[0], "source", None)
    if source is not None:
        source(data)
    elif data is not None:
        takers = [key for key in ENVS if hasattr(_load(ENVS[key]), "source")]
        raise UserError(f"--data: {name} takes none; those that do: {', '.join(takers)}")


def check_prompts(name: str, prompts: dict[str, dict[str, str]] | None) -> None:
    """ValueError: --prompts has words that no environment takes, or none for `name`"""
    if prompts is None:
        return
    takers = [key for key, path in ENVS.items() if hasattr(_load(path), "prompt_fields")]
    choices = f"choices: {', '.join(takers)}"
    for key, table in prompts.items():
        if key not in takers:
            raise UserError(f"--prompts: no environment takes [{key}]; {choices}")
        check_fields(key, table, _load(ENVS[key]).prompt_fields)
    if _key(name) not in takers:
        raise UserError(f"--prompts: {name} takes none, its words are in its class; {choices}")
    if _key(name) not in prompts:
        raise UserError(f"--prompts: there is no [{_key(name)}] for {name} in the file")


def _key(name: str) -> str:
    """Return the key in ENVS of one of our environments."""
    return name if name in ENVS or ":" in name else name.split("-", 1)[0]


def _find(name: str) -> tuple[type, list[str]]:
    """Return the class behind a name, and the arguments that it takes first: a task or nothing."""
    key, task = _key(name), [] if name in ENVS else name.split("-", 1)[1:]
    if key in ENVS:
        try:
            environment = _load(ENVS[key])
        except ModuleNotFoundError as error:
            raise UserError(f"{name} needs the package {error.name}, please install it") from error
        if (task[0] in environment.tasks) if task else not environment.tasks:
            return environment, task
    near = ", ".join(difflib.get_close_matches(name, names(), 5, 0))
    raise UserError(
        f"unknown environment {name!r}; nearest first: {near}; all: python -m envs; "
        f"one of yours: {', '.join(FORMS)}"
    )


def _load(path: str) -> type:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def names() -> list[str]:
    """Return the names of our environments."""
    found = []
    for key, path in ENVS.items():
        try:
            tasks = _load(path).tasks
        except ModuleNotFoundError:  # its package is optional
            tasks = ()
        found += [f"{key}-{task}" for task in tasks] or [key]
    return found
