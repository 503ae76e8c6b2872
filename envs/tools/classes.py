"""A user's class with tools as an environment: tools:module:Class, without a registration.

It is a ToolEnv, a Dialogue, or a class as TRL's GRPOTrainer takes it for `environment_factory`,
which is used as it is: `reset` begins an episode, every other public method is a tool, and
`get_reward` judges the episode. TRL itself is not needed.
"""

import inspect
import reprlib
from textwrap import shorten

import gymnasium

from common.plugins import UserError, defined_at, find_module, place_of
from envs.contract import BrokenContract, check_reward
from envs.dialogue.dialogue_env import Dialogue
from envs.tools.schemas import VARIADIC
from envs.tools.thread import finished
from envs.tools.tool_env import ToolEnv

FORM = "the form is tools:module:Class, as in tools:my_envs:MyTools"
GIVEN = ("seed", "prompt")  # what `reset` may take, or all of it by **kwargs
ATTRIBUTES = "system", "max_turns", "max_calls", "tool_timeout", "max_result_characters"


def make_tools(name: str) -> gymnasium.Env:
    """Make the environment "tools:module:Class". ValueError: it cannot be made"""
    module, attribute = find_module("environment", name.partition(":")[2], FORM)
    made_by = getattr(module, attribute, None)
    if not inspect.isclass(made_by):
        there = [key for key, x in vars(module).items() if inspect.isclass(x) and _serves(x)]
        choices = f"choices: {', '.join(there)}" if there else FORM
        raise UserError(f"module {module.__name__!r} has no class {attribute!r}; {choices}")
    try:
        thing = made_by()
    except (Exception, SystemExit) as error:  # a user's constructor may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", 300)
        line = f"{place_of(error)}environment {name!r} cannot be made: {reason}"
        raise UserError(line) from error
    return thing if getattr(thing, "speaks_messages", False) else ClassOfTRL(thing)


def _serves(thing: type) -> bool:
    ours = (ToolEnv, Dialogue)
    return thing not in ours and (issubclass(thing, ours) or hasattr(thing, "get_reward"))


def _is_method(thing) -> bool:
    return inspect.isfunction(thing) or inspect.ismethod(thing)  # methods, also of the class


class ClassOfTRL(ToolEnv):
    """An object with `reset`, `get_reward` and tools, as TRL's trainer takes it.

    The user's message is the class's attribute `prompt`, if it has one, with the text that `reset`
    returns after it, as TRL puts it after the prompt of the data set's row. If both are empty, the
    class's docstring is what the user says. `reset` gets the arguments among `seed` and `prompt`
    that it takes. The class may also have the attributes of ToolEnv, as `system` and `max_turns`.
    """

    def __init__(self, thing):
        super().__init__()
        self.thing, self.kind, self.tools = thing, type(thing), []
        for name in ("reset", "get_reward"):
            if not callable(getattr(thing, name, None)):
                raise self._broken(name, "is missing: a class with tools must be a ToolEnv or have "
                                         "reset() and get_reward()")  # fmt: skip
        self.takes = inspect.signature(thing.reset).parameters.values()
        for one in self.takes:
            if one.default is one.empty and one.kind not in VARIADIC and one.name not in GIVEN:
                said = f"needs {one.name!r}; it gets {' and '.join(GIVEN)}, and no data set's row"
                raise self._broken("reset", said)
        for name, _ in inspect.getmembers(self.kind, _is_method):
            if name not in ("reset", "get_reward") and not name.startswith("_"):
                self.tools.append(getattr(thing, name))
        if not self.tools:
            raise self._broken("reset", "has no public method beside it that could be a tool")
        for name in ATTRIBUTES:
            if hasattr(thing, name):
                setattr(self, name, getattr(thing, name))

    def question(self, seed: int) -> str:
        prompt = getattr(self.thing, "prompt", "")
        given = {"seed": seed, "prompt": [{"role": "user", "content": prompt}]}
        if all(one.kind is not one.VAR_KEYWORD for one in self.takes):
            given = {one.name: given[one.name] for one in self.takes if one.name in given}
        said = finished(lambda: self.thing.reset(**given))
        if not isinstance(said, str | None):
            raise self._broken("reset", f"returned {reprlib.repr(said)}; it must be None or a text")
        text = f"{prompt}{said or ''}".strip() or inspect.cleandoc(self.kind.__doc__ or "")
        if not text:
            said = "said nothing, and the class has no text `prompt` and no docstring instead"
            raise self._broken("reset", said)
        return text

    def reward(self, answer: str) -> float:
        reward = finished(self.thing.get_reward)
        try:
            check_reward(self, "reward", reward)
        except BrokenContract as error:
            said = f"returned {reprlib.repr(reward)}; it must be a finite number"
            raise self._broken("get_reward", said) from error
        return reward

    def limit_reached(self) -> float:
        return self.reward("")  # TRL asks for the reward however an episode ends

    def _broken(self, name: str, what: str) -> BrokenContract:
        place = defined_at(getattr(self.kind, name, None)) or defined_at(self.kind)
        return BrokenContract(f"{place}{self.kind.__name__}.{name} {what}")
