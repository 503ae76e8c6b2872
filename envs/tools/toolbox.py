"""The tools of one environment: finds them, runs calls and writes results for the model.

Every failure of a call becomes an error text for the model and is counted. None ends the episode.
"""

import asyncio
import copy
import functools
import inspect
import json
from collections import Counter
from collections.abc import Callable

import gymnasium

from common.shorten import shortened
from envs.contract import breach
from envs.errors import BrokenContract
from envs.tools.schemas import BadArgument, arguments_of, describe
from envs.tools.thread import ToolThread, ToolTimeout, run_to_end


class Toolbox:
    """Runs the calls of an environment that has the attributes of a `ToolEnv`.

    functions: name -> tool, in the order of the environment's `tools`
    schemas: name -> schema, for chat templates
    counts: this episode's tool_calls, unknown_tools, tool_errors and shortened_results
    """

    def __init__(self, env: gymnasium.Env):
        self.functions = bind(env, env.tools)
        self.schemas = {name: describe(tool) for name, tool in self.functions.items()}
        self.max_calls, self.timeout = env.max_calls, env.tool_timeout
        self.max_characters = env.max_result_characters
        self.counts, self.thread = Counter(), ToolThread()

    def answer(self, calls: tuple[dict, ...]) -> list[str]:
        """Run the calls of a message, as `common.calls.read` returns them; return their results."""
        texts = [self._call(call) for call in calls[: self.max_calls]]
        too_many = f"only {self.max_calls} calls of a message are run"
        texts += [self._error(too_many) for _ in calls[self.max_calls :]]
        return [self._shortened(text) for text in texts]

    def run(self, function: Callable, *arguments, limit: float | None = None):
        """Call a function of the environment; limit: seconds, None for no limit.

        All functions run in one thread, because some objects, such as connections to databases,
        work only in the thread that made them.
        """
        call = functools.partial(function, *arguments)
        return self.thread.call(call, limit) if self.timeout else run_to_end(call)

    def _call(self, call: dict) -> str:
        name = call["name"]
        self.counts["tool_calls"] += 1
        if name not in self.functions:
            self.counts["unknown_tools"] += 1
            return f"Error: there is no tool {name!r}; the tools are {', '.join(self.functions)}"
        try:
            # A copy, because a tool may change its arguments, and the history shows the original.
            arguments = arguments_of(copy.deepcopy(call), self.schemas[name])
            tool = functools.partial(self.functions[name], **arguments)
            return as_text(self.run(tool, limit=self.timeout))
        except BrokenContract:
            raise
        except (BadArgument, ToolTimeout) as error:
            return self._error(str(error))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            # A tool raises ValueError with a text for the model; other errors show their class.
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            return self._error(f"{kind}{error}".removesuffix(": "))

    def _error(self, message: str) -> str:
        self.counts["tool_errors"] += 1
        return f"Error: {message}"

    def _shortened(self, text: str) -> str:
        if len(text) <= self.max_characters:
            return text
        self.counts["shortened_results"] += 1
        return shortened(text, self.max_characters)


def bind(env: gymnasium.Env, tools) -> dict[str, Callable]:
    """Return the functions of an environment's `tools` by name.

    tools: functions, bound methods, functions of the class's body, or names of public methods
    BrokenContract: `tools` is empty, or holds something else
    """
    if not isinstance(tools, list | tuple) or not tools:
        needed = "it must be a list or a tuple of functions or names of methods"
        raise breach(env, "tools", f"is {tools!r:.80}; {needed}")
    functions = {}
    for tool in tools:
        function = _function(env, tool)
        if function.__name__ in functions:
            raise breach(env, "tools", f"holds two tools of the name {function.__name__!r}")
        functions[function.__name__] = function
    return functions


def _function(env: gymnasium.Env, tool) -> Callable:
    if isinstance(tool, staticmethod | classmethod):  # `tools` was set in the class's body
        tool = tool.__func__.__name__
    name = tool if isinstance(tool, str) else getattr(tool, "__name__", "")
    if inspect.isfunction(tool) and tool in [vars(cls).get(name) for cls in type(env).__mro__]:
        first = next(iter(inspect.signature(tool).parameters), "")
        tool = name if first == "self" else tool  # by name, so that a subclass may override it
    if isinstance(tool, str):
        tool = None if tool.startswith("_") else getattr(env, tool, None)
    if not (inspect.isroutine(tool) and name.isidentifier()):
        problem = f"holds {name or tool!r:.80}, which is neither a function nor a public method"
        raise breach(env, "tools", problem)
    return tool


def as_text(result) -> str:
    """Return a tool's result as the model reads it: a text unchanged, anything else as JSON."""
    if isinstance(result, str):
        return result
    return json.dumps(_with_json_keys(result), ensure_ascii=False, default=_json_value)


def _with_json_keys(value):
    """Replace keys that JSON does not allow, such as tuples, by their text."""
    if isinstance(value, dict):
        return {_json_key(key): _with_json_keys(item) for key, item in value.items()}
    return [_with_json_keys(item) for item in value] if isinstance(value, list | tuple) else value


def _json_key(key):
    return key if isinstance(key, str | int | float | None) else str(key)


def _json_value(value):
    """Convert what JSON lacks: numpy's values, sets, and other objects to their text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else str(value)
