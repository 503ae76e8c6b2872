"""Finds the part that the command line names, one of ours or `module:name` of the user's own.

It also finds the line of a user's file in which a mistake lies. Any room may import this file; it
imports none.
"""

import importlib
import inspect
import os
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("common", "envs", "memory", "storage", "ppo", "run", "reports", "paper", "models")
FILES = ("main.py", "branch.py", "arguments.py", "recipes.py", "fit.py", "doctor.py", "__main__.py")
OURS = [ROOT / name for name in (*ROOMS, *FILES, "benchmarks", "tests")]
NOT_A_USERS = [Path(os.__file__).resolve().parent, *OURS]


class UserError(ValueError):
    """A mistake of the user's. Its one line says what is wrong and what the choices are."""


def find(kind: str, name: str, known: dict[str, str]):
    """Return what `name` means: a key of `known` (name -> "module:attribute"), or such a value.

    ValueError: there is no such name, module or attribute; the message gives the choices
    """
    choices = f"choices: {', '.join(known)}{', or ' if known else ''}module:name of your own"
    module, attribute = find_module(kind, known.get(name, name), choices)
    if not hasattr(module, attribute):
        raise UserError(f"module {module.__name__!r} has no {attribute!r}; {choices}")
    return getattr(module, attribute)


def find_module(kind: str, name: str, choices: str):
    """Import the module of "module:attribute"; return (module, attribute). Errors are `find`'s."""
    module, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise UserError(f"unknown {kind} {name!r}; {choices}")
    try:
        return importlib.import_module(module), attribute
    except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        line = f"{location_of(error)}{kind} {name!r} cannot be imported ({reason}); {choices}"
        raise UserError(line) from error


def check_call(function, *words: str, **options) -> None:
    """ValueError: a user's function, method or class does not take the arguments of these names."""
    try:
        inspect.signature(function).bind(*words, **options)
    except (TypeError, ValueError) as error:
        names = ", ".join([*words, *options])
        line = f"{getattr(function, '__qualname__', function)} must take ({names}): {error}"
        raise UserError(f"{defined_at(function)}{line}") from error


def location_of(error: BaseException) -> str:
    """Return "file:line: " of the last line of a user's code that led to an error, or ""."""
    lines = [users_line(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    return next((line for line in reversed(lines) if line), "")


def defined_at(thing) -> str:
    """Return "file:line: " of a user's function, method or class, or "" if it is not a user's."""
    try:
        return users_line(inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1])
    except (OSError, TypeError):
        return ""


def users_line(file: str | None, line: int) -> str:
    """Return "file:line: ", or "" if the file is this project's or an installed package's."""
    path = Path(file or "").resolve()
    installed = {"site-packages", "dist-packages"} & {*path.parts}
    if installed or not path.is_file() or any(map(path.is_relative_to, NOT_A_USERS)):
        return ""
    near = os.path.relpath(path)  # to the working directory
    return f"{path if near.startswith('..') else near}:{line}: "
