"""The type of --template-kwargs: a JSON object of arguments that the chat template gets.

One of them, `chat_template`, is the template itself, as it is for transformers. On the command line
it names a file, for models whose own template lists no tools. The value has its text, so that a run
does not depend on the file any more.
"""

import json
from argparse import ArgumentTypeError
from pathlib import Path

TEMPLATE = "chat_template"


def template_kwargs(text: str) -> dict:
    """Return the arguments. ArgumentTypeError: they are not what they must be, or no such file"""
    try:
        given = json.loads(text)
        json.dumps(given, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(given, dict) or not all(map(str.isidentifier, given)):
        raise ArgumentTypeError(f"{text!r} is not a JSON object of names and values")
    for name in sorted({"messages", "tools", "documents", "add_generation_prompt"} & given.keys()):
        raise ArgumentTypeError(f"{name} is given to the template in each prompt")
    if TEMPLATE in given:
        given[TEMPLATE] = jinja(given[TEMPLATE])
    return given


def jinja(named: str) -> str:
    """Return the template of a file, or the one that is written out, which has a "{"."""
    if not isinstance(named, str):
        raise ArgumentTypeError(f"{TEMPLATE} must name a file, got {named!r}")
    if "{" in named:
        return named
    try:
        return Path(named).read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentTypeError(f"{TEMPLATE} {named}: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or a name with a null character
        raise ArgumentTypeError(f"{TEMPLATE} {named}: {error}") from error
