"""The tools of one environment: which they are, and how a call becomes a text for the model.

Whatever goes wrong in a call is told to the model and counted. It never ends the episode.
"""

import asyncio
import copy
import inspect
import json
from collections import Counter
from collections.abc import Callable

import gymnasium

from common.chat import shortened
from envs.contract import BrokenContract, breach
from envs.tools.schemas import BadArgument, arguments_of, describe
from envs.tools.thread import TooLate, ToolThread, finished


class Toolbox:
    """env: has `tools`, `max_calls`, `tool_timeout` and `max_result_characters`; see `ToolEnv`

    functions: by name, in the order of `tools`
    schemas: what chat templates show of them
    counts: of this episode: tool_calls, unknown_tools, tool_errors, shortened_results
    """

    def __init__(self, env: gymnasium.Env):
        self.functions = bind(env, env.tools)
        self.schemas = {name: describe(tool) for name, tool in self.functions.items()}
        self.timeout, self.most = env.tool_timeout, env.max_result_characters
        self.max_calls, self.counts, self.thread = env.max_calls, Counter(), ToolThread()

    def answer(self, calls: tuple[dict, ...]) -> list[str]:
        """Run the calls of a message, as `tool_calls.read` found them; return their results."""
        texts = [self._call(call) for call in calls[: self.max_calls]]
        many = f"only {self.max_calls} calls of a message are run"
        texts += [self._error(many) for _ in calls[self.max_calls :]]
        return [self._shortened(text) for text in texts]

    def run(self, function: Callable, *words, limit: float | None = None, **arguments):
        """Call a function. All functions of an environment run in one thread, because connections
        to databases, for example, belong to a thread."""
        call = lambda: function(*words, **arguments)
        return self.thread.call(call, limit) if self.timeout else finished(call)

    def _call(self, call: dict) -> str:
        name = call["name"]
        self.counts["tool_calls"] += 1
        if name not in self.functions:
            self.counts["unknown_tools"] += 1
            return f"Error: there is no tool {name!r}; the tools are {', '.join(self.functions)}"
        try:
            # A tool may change what it gets, and the history shows what the model wrote.
            arguments = arguments_of(copy.deepcopy(call), self.schemas[name])
            tool = self.functions[name]
            return as_text(self.run(lambda: tool(**arguments), limit=self.timeout))
        except BrokenContract:
            raise
        except (BadArgument, TooLate) as error:
            return self._error(str(error))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            # A tool raises ValueError to tell the model something; other errors have a name.
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            return self._error(f"{kind}{error}".removesuffix(": "))

    def _error(self, line: str) -> str:
        self.counts["tool_errors"] += 1
        return f"Error: {line}"

    def _shortened(self, text: str) -> str:
        if len(text) <= self.most:
            return text
        self.counts["shortened_results"] += 1
        return shortened(text, self.most)


def bind(env: gymnasium.Env, tools) -> dict[str, Callable]:
    """Return the functions of an environment's `tools` by name.

    tools: functions, bound methods, functions of the class's body, or names of public methods
    BrokenContract: there are none, or one of them is something else
    """
    if not isinstance(tools, list | tuple) or not tools:
        said = f"is {tools!r:.80}; it must be a list or a tuple of functions or names of methods"
        raise breach(env, "tools", said)
    functions = {}
    for tool in tools:
        function = _function(env, tool)
        if function.__name__ in functions:
            raise breach(env, "tools", f"holds two tools of the name {function.__name__!r}")
        functions[function.__name__] = function
    return functions


def _function(env: gymnasium.Env, tool) -> Callable:
    if isinstance(tool, staticmethod | classmethod):  # it was named in the class's body
        tool = tool.__func__.__name__
    name = tool if isinstance(tool, str) else getattr(tool, "__name__", "")
    if inspect.isfunction(tool) and tool in [vars(cls).get(name) for cls in type(env).__mro__]:
        first = next(iter(inspect.signature(tool).parameters), "")
        tool = name if first == "self" else tool  # the method, which a subclass may have replaced
    if isinstance(tool, str):
        tool = None if tool.startswith("_") else getattr(env, tool, None)
    if not (inspect.isroutine(tool) and name.isidentifier()):
        said = f"holds {name or tool!r:.80}, which is neither a function nor a public method"
        raise breach(env, "tools", said)
    return tool


def as_text(result) -> str:
    """Return a tool's result as the model reads it: a text as it is, all else as JSON."""
    if isinstance(result, str):
        return result
    return json.dumps(_keyed(result), ensure_ascii=False, default=_plain)


def _keyed(thing):
    """Turn keys that JSON cannot have, such as tuples, into texts."""
    if isinstance(thing, dict):
        simple = lambda key: key if isinstance(key, str | int | float | None) else str(key)
        return {simple(key): _keyed(value) for key, value in thing.items()}
    return [_keyed(part) for part in thing] if isinstance(thing, list | tuple) else thing


def _plain(thing):
    """What JSON lacks: numbers and arrays of numpy, sets, and others by their own text."""
    if hasattr(thing, "tolist"):
        return thing.tolist()
    return sorted(thing, key=repr) if isinstance(thing, set | frozenset) else str(thing)
