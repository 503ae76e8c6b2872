"""Finds what the command line chooses by name: one of ours, or `module:name` of the user's own.

Engines, memories, estimators and environments are all found here, so that a mistake in any of them
gets the same one-line error. Nothing of the project is imported, so every room may import this.
"""

import importlib
from types import ModuleType


def find(kind: str, name: str, known: dict[str, str]):
    """Return the object that `name` stands for.

    kind: what is looked for, for the error message, as in "memory"
    name: a key of `known`, or "module:attribute"
    known: short names and the "module:attribute" that each stands for
    ValueError: there is no such name, module or attribute; the line says which, and the choices
    """
    choices = f"choices: {', '.join(known)}, or module:name of your own"
    module, attribute = find_module(kind, known.get(name, name), choices)
    if not hasattr(module, attribute):
        raise ValueError(f"module {module.__name__!r} has no {attribute!r}; {choices}")
    return getattr(module, attribute)


def find_module(kind: str, name: str, choices: str) -> tuple[ModuleType, str]:
    """Import the module of "module:attribute"; return it with the name of the attribute.

    ValueError: `name` has another form, or the module cannot be imported
    """
    module, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"unknown {kind} {name!r}; {choices}")
    try:
        return importlib.import_module(module), attribute
    except Exception as error:  # the user's module may raise anything while it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ValueError(f"{kind} {name!r} cannot be imported ({reason}); {choices}") from error
