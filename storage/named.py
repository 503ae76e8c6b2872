"""Finds what the command line chooses by name: one of ours, or `module:name` of the user's own.

A mistake gets the same one-line error everywhere. Any room may import this file; it imports none.
"""

import importlib


def find(kind: str, name: str, known: dict[str, str]):
    """Return what `name` means: a key of `known` (name -> "module:attribute"), or such a value.

    ValueError: there is no such name, module or attribute; the message gives the choices
    """
    choices = f"choices: {', '.join(known)}, or module:name of your own"
    module, attribute = find_module(kind, known.get(name, name), choices)
    if not hasattr(module, attribute):
        raise ValueError(f"module {module.__name__!r} has no {attribute!r}; {choices}")
    return getattr(module, attribute)


def find_module(kind: str, name: str, choices: str):
    """Import the module of "module:attribute"; return (module, attribute). Errors are `find`'s."""
    module, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"unknown {kind} {name!r}; {choices}")
    try:
        return importlib.import_module(module), attribute
    except Exception as error:  # a user's module may raise anything when it is imported
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ValueError(f"{kind} {name!r} cannot be imported ({reason}); {choices}") from error
