"""Turns Python functions into the schemas that models read, and checks a call's arguments.

`transformers.utils.get_json_schema` makes a tool's schema from its type hints and its docstring.
Arguments are checked against it before the tool runs, so the model reads what is wrong with them.
"""

import inspect
import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from textwrap import shorten

from common.plugins import UserError, defined_at
from envs.errors import BrokenContract

PATCH_LOCK = threading.Lock()
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


class BadArgument(ValueError):
    """The arguments of a call do not fit the tool. The model reads the text."""


def describe(function: Callable) -> dict:
    """Return the schema of a tool. BrokenContract: the tool has no complete description"""
    try:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in VARIADIC or parameter.kind is parameter.POSITIONAL_ONLY:
                raise UserError(f"argument {parameter} cannot be given by name")
        return _schema(function)
    except Exception as error:  # evaluating a type hint may raise anything
        name = getattr(function, "__name__", repr(function))
        reason = shorten(" ".join(map(str, error.args)), 300)
        needs = "needs a docstring, and a type hint and a line under Args: for each argument"
        raise BrokenContract(f"{defined_at(function)}tool {name!r} {needs}: {reason}") from error


def _schema(function) -> dict:
    # Imported here: it takes a second, and only environments with tools need it.
    from transformers.utils import chat_template_utils

    with PATCH_LOCK:
        original = chat_template_utils.is_torch_available
        if "torch" not in sys.modules:
            # It would import torch, 180 MB in each worker, to recognise the type hint torch.Tensor.
            chat_template_utils.is_torch_available = lambda: False
        try:
            return chat_template_utils.get_json_schema(function)
        finally:
            chat_template_utils.is_torch_available = original


def arguments_of(call: dict, schema: dict) -> dict:
    """Return the arguments of a call, converted to the tool's types. BadArgument: they do not fit

    call: {"name", "arguments"}, and "raw": True if all values are texts that must be converted
    """
    values, parameters = call["arguments"], schema["function"]["parameters"]
    properties = parameters["properties"]
    for name in parameters.get("required", []):
        if name not in values:
            raise BadArgument(f"{call['name']} needs the argument {name!r}")
    for name in values:
        if name not in properties:
            choices = f"it takes {', '.join(properties)}" if properties else "it takes none"
            raise BadArgument(f"{call['name']} takes no argument {name!r}; {choices}")
    arguments = {}
    for name, value in values.items():
        arguments[name] = value = _converted(value, properties[name], call.get("raw", False))
        if not fits(value, properties[name]):
            text = shorten(json.dumps(value, ensure_ascii=False), 80)
            expected = f"{name!r} of {call['name']} must be {_expected(properties[name])}"
            raise BadArgument(f"the argument {expected}, and not {text}")
    return arguments


def converted(call: dict, known: dict[str, dict]) -> dict:
    """Return the arguments of a call, converted to the types of the schemas `known`, unchecked.

    The schemas are an agent program's; an argument whose schema is malformed stays as it is.
    """
    arguments = dict(call["arguments"])
    for name, value in arguments.items():
        schema = known[name] if isinstance(known.get(name), dict) else {}
        with suppress(TypeError, AttributeError):  # a malformed schema
            arguments[name] = _converted(value, schema, call.get("raw", False))
    return arguments


def fits(value, schema: dict) -> bool:
    """Return whether a schema, of get_json_schema or of an agent program, allows a JSON value.

    A null in a schema counts as absent, because some programs write out all fields.
    """
    if isinstance(schema, bool | None):  # True allows every value, and False none
        return schema is not False
    if value is None and schema.get("nullable"):
        return True
    if schema.get("anyOf"):
        return any(fits(value, choice) for choice in schema["anyOf"])
    types = schema.get("type") or list(TYPES)
    types = [types] if isinstance(types, str) else types
    if not any(_has_type(value, name) for name in types):
        return False
    if value not in (schema.get("enum") or [value]):
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


def _has_type(value, name: str) -> bool:
    if isinstance(value, bool):  # a bool is an int in Python
        return name == "boolean"
    return isinstance(value, TYPES.get(name, object))


def _converted(value, schema: dict, raw: bool):
    """Convert 3.0 to 3 for an integer, and a raw text to the type of its schema."""
    if raw and not (schema.get("type") == "string" and not schema.get("nullable")):
        literals = {"True": "true", "False": "false", "None": "null"}  # templates print Python's
        try:
            parsed = json.loads(literals.get(value.strip(), value))
        except (ValueError, RecursionError):
            parsed = value
        value = next((x for x in (parsed, value) if fits(x, schema)), parsed)
    if isinstance(value, float) and value.is_integer() and not fits(value, schema):
        value = int(value)
    return value


def _expected(schema: dict) -> str:
    """Return what a schema allows, in words for the model."""
    if "enum" in schema:
        return f"one of {json.dumps(schema['enum'], ensure_ascii=False)}"
    if "anyOf" in schema:
        return " or ".join(map(_expected, schema["anyOf"]))
    types = schema.get("type", "any JSON")
    text = types if isinstance(types, str) else " or ".join(types)
    items = schema.get("items")
    text += f" of {_expected(items)}" if items else ""
    return f"{text} or null" if schema.get("nullable") else text
