"""A user's class as an environment by its name, tools:module:Class, without registration.

The class is a ToolEnv, a Dialogue, or a class as TRL's GRPOTrainer takes it for
`environment_factory`, used unchanged: `reset` begins an episode, every other public method is a
tool, and `get_reward` judges the episode. TRL need not be installed.
"""

import inspect
import reprlib

import gymnasium

from common.errors import typed_reason_of
from common.plugins import UserError, defined_at, find_module, location_of
from envs.contract import check_reward
from envs.dialogue.dialogue_env import Dialogue
from envs.errors import BrokenContract
from envs.tools.schemas import VARIADIC
from envs.tools.thread import run_to_end
from envs.tools.tool_env import ToolEnv

FORM = "the form is tools:module:Class, as in tools:my_envs:MyTools"
RESET_ARGUMENTS = ("seed", "prompt")  # `reset` gets those it takes, or both in **kwargs
ATTRIBUTES = ("system", "max_turns", "max_calls", "tool_timeout", "max_result_characters")


def make_tools(name: str) -> gymnasium.Env:
    """Make the environment "tools:module:Class". UserError: it cannot be made"""
    module, attribute = find_module("environment", name.partition(":")[2], FORM)
    users_class = getattr(module, attribute, None)
    if not inspect.isclass(users_class):
        known = [key for key, x in vars(module).items() if inspect.isclass(x) and _is_usable(x)]
        choices = f"choices: {', '.join(known)}" if known else FORM
        raise UserError(f"module {module.__name__!r} has no class {attribute!r}; {choices}")
    try:
        instance = users_class()
    except (Exception, SystemExit) as error:  # a user's constructor may raise anything
        problem = f"environment {name!r} cannot be made: {typed_reason_of(error)}"
        raise UserError(f"{location_of(error)}{problem}") from error
    return instance if getattr(instance, "speaks_messages", False) else TRLAdapter(instance)


def _is_usable(cls: type) -> bool:
    bases = (ToolEnv, Dialogue)
    return cls not in bases and (issubclass(cls, bases) or hasattr(cls, "get_reward"))


def _is_method(member) -> bool:
    return inspect.isfunction(member) or inspect.ismethod(member)  # a class method is the latter


class TRLAdapter(ToolEnv):
    """Wraps an object with `reset`, `get_reward` and tools, as TRL's trainer takes it.

    The user's message is the class's attribute `prompt`, if there is one, followed by the text that
    `reset` returns; TRL likewise appends this text to the prompt of the dataset's row. If both are
    empty, the message is the class's docstring. `reset` gets `seed` and `prompt` if it takes them.
    The class may also have the attributes of ToolEnv, such as `system` and `max_turns`.
    """

    def __init__(self, instance):
        super().__init__()
        self.instance, self.cls, self.tools = instance, type(instance), []
        for name in ("reset", "get_reward"):
            if not callable(getattr(instance, name, None)):
                wanted = "a class with tools must be a ToolEnv or have reset() and get_reward()"
                raise self._broken(name, f"is missing: {wanted}")
        self.parameters = inspect.signature(instance.reset).parameters.values()
        self._check_parameters()
        for name, _ in inspect.getmembers(self.cls, _is_method):
            if name not in ("reset", "get_reward") and not name.startswith("_"):
                self.tools.append(getattr(instance, name))
        if not self.tools:
            raise self._broken("reset", "has no public method beside it that could be a tool")
        for name in ATTRIBUTES:
            if hasattr(instance, name):
                setattr(self, name, getattr(instance, name))

    def _check_parameters(self) -> None:
        for p in self.parameters:
            optional = p.default is not p.empty or p.kind in VARIADIC
            if not optional and p.name not in RESET_ARGUMENTS:
                choices = " and ".join(RESET_ARGUMENTS)
                message = f"needs {p.name!r}; it gets {choices}, and no row of a dataset"
                raise self._broken("reset", message)

    def question(self, seed: int) -> str:
        prompt = getattr(self.instance, "prompt", "")
        arguments = {"seed": seed, "prompt": [{"role": "user", "content": prompt}]}
        if all(p.kind is not p.VAR_KEYWORD for p in self.parameters):
            names = {p.name for p in self.parameters}
            arguments = {name: value for name, value in arguments.items() if name in names}
        text = run_to_end(lambda: self.instance.reset(**arguments))
        if not isinstance(text, str | None):
            raise self._broken("reset", f"returned {reprlib.repr(text)}; it must be None or a text")
        text = f"{prompt}{text or ''}".strip() or inspect.cleandoc(self.cls.__doc__ or "")
        if not text:
            message = "returned no text, and the class has neither a `prompt` nor a docstring"
            raise self._broken("reset", message)
        return text

    def reward(self, answer: str) -> float:
        reward = run_to_end(self.instance.get_reward)
        try:
            check_reward(self, "reward", reward)
        except BrokenContract as error:
            message = f"returned {reprlib.repr(reward)}; it must be a finite number"
            raise self._broken("get_reward", message) from error
        return reward

    def limit_reached(self) -> float:
        return self.reward("")  # like TRL, which asks for the reward however an episode ends

    def _broken(self, name: str, problem: str) -> BrokenContract:
        location = defined_at(getattr(self.cls, name, None)) or defined_at(self.cls)
        return BrokenContract(f"{location}{self.cls.__name__}.{name} {problem}")
