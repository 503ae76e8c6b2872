"""From Python functions to the schemas that models read, and from a call's arguments to Python.

The schema of a tool is what `transformers.utils.get_json_schema` makes of its type hints and its
docstring. Arguments are checked with it before the tool runs, so a mistake of the model's has a
text that says what is wrong.
"""

import inspect
import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from textwrap import shorten

from common.plugins import UserError, defined_at
from envs.contract import BrokenContract

ONE_AT_A_TIME = threading.Lock()
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
TYPES = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
    "object": dict, "null": type(None),
}  # fmt: skip


class BadArgument(ValueError):
    """The arguments of a call do not fit the tool. The text says why, in words for the model."""


def describe(function: Callable) -> dict:
    """Return the schema of a tool. BrokenContract: it cannot be described to a model"""
    try:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in VARIADIC or parameter.kind is parameter.POSITIONAL_ONLY:
                raise UserError(f"argument {parameter} cannot be given by name")
        return _schema(function)
    except Exception as error:  # also what evaluating a type hint raises
        name = getattr(function, "__name__", repr(function))
        reason = shorten(" ".join(map(str, error.args)), 300)
        what = "needs a docstring, and a type hint and a line under Args: for each argument"
        raise BrokenContract(f"{defined_at(function)}tool {name!r} {what}: {reason}") from error


def _schema(function) -> dict:
    # Imported here, because it takes a second, and only environments with tools need it.
    from transformers.utils import chat_template_utils as theirs

    with ONE_AT_A_TIME:
        has_torch = theirs.is_torch_available
        if "torch" not in sys.modules:
            # It would import torch, 180 MB in each worker, to know the type hint torch.Tensor.
            theirs.is_torch_available = lambda: False
        try:
            return theirs.get_json_schema(function)
        finally:
            theirs.is_torch_available = has_torch


def arguments_of(call: dict, schema: dict) -> dict:
    """Return the arguments of a call as the tool takes them. BadArgument: they do not fit

    call: {"name", "arguments"}, and "raw": True if all values are texts that must be converted
    """
    given, parameters = call["arguments"], schema["function"]["parameters"]
    known = parameters["properties"]
    for name in parameters.get("required", []):
        if name not in given:
            raise BadArgument(f"{call['name']} needs the argument {name!r}")
    for name in given:
        if name not in known:
            choices = f"it takes {', '.join(known)}" if known else "it takes none"
            raise BadArgument(f"{call['name']} takes no argument {name!r}; {choices}")
    arguments = {}
    for name, value in given.items():
        arguments[name] = value = _converted(value, known[name], call.get("raw", False))
        if not fits(value, known[name]):
            said = json.dumps(value, ensure_ascii=False)
            wanted = f"{name!r} of {call['name']} must be {_wanted(known[name])}"
            raise BadArgument(f"the argument {wanted}, and not {shorten(said, 80)}")
    return arguments


def converted(call: dict, known: dict[str, dict]) -> dict:
    """Return the arguments of a call, unchecked, with the types that the schemas `known` say. They
    are a program's: where one cannot be read, the argument stays as it is."""
    arguments = dict(call["arguments"])
    for name, value in arguments.items():
        schema = known[name] if isinstance(known.get(name), dict) else {}
        with suppress(TypeError, AttributeError):
            arguments[name] = _converted(value, schema, call.get("raw", False))
    return arguments


def fits(value, schema: dict) -> bool:
    """Return whether a JSON value is what a schema, of get_json_schema's or a program's, allows.
    What is null in a schema is not said there, as some programs write out all fields."""
    if isinstance(schema, bool | None):  # True allows every value, and False none
        return schema is not False
    if value is None and schema.get("nullable"):
        return True
    if schema.get("anyOf"):
        return any(fits(value, choice) for choice in schema["anyOf"])
    types = schema.get("type") or list(TYPES)
    types = [types] if isinstance(types, str) else types
    if not any(_is(value, name) for name in types) or value not in (schema.get("enum") or [value]):
        return False
    if isinstance(value, list):
        parts = schema.get("prefixItems")
        if parts is not None and len(parts) != len(value):
            return False
        parts = parts or [schema.get("items")] * len(value)
        return all(map(fits, value, parts))
    known, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    parts = value.items() if isinstance(value, dict) else ()
    return all(fits(part, known.get(name, rest)) for name, part in parts)


def _is(value, name: str) -> bool:
    if isinstance(value, bool):  # which Python counts among the integers
        return name == "boolean"
    return isinstance(value, TYPES.get(name, object))


def _converted(value, schema: dict, raw: bool):
    """Turn 3.0 into 3 where an integer is wanted, and, if it is raw, a text into what is wanted."""
    if raw and not (schema.get("type") == "string" and not schema.get("nullable")):
        words = {"True": "true", "False": "false", "None": "null"}  # as templates print Python
        try:
            read = json.loads(words.get(value.strip(), value))
        except (ValueError, RecursionError):
            read = value
        value = next((x for x in (read, value) if fits(x, schema)), read)
    if isinstance(value, float) and value.is_integer() and not fits(value, schema):
        value = int(value)
    return value


def _wanted(schema: dict) -> str:
    if "enum" in schema:
        return f"one of {json.dumps(schema['enum'], ensure_ascii=False)}"
    if "anyOf" in schema:
        return " or ".join(map(_wanted, schema["anyOf"]))
    types = schema.get("type", "any JSON")
    said = types if isinstance(types, str) else " or ".join(types)
    items = schema.get("items")
    said += f" of {_wanted(items)}" if items else ""
    return f"{said} or null" if schema.get("nullable") else said
