"""A user's own prompts in the place of ours: the TOML file of --prompts.

    [babyai]
    system = "Walk and use your hands to {mission}. Your actions: {actions}."
    instruction = "Think, then answer with a line ACTION: and one action."

A table is named after the environments that it is for, as far as their names are alike. `system` is
the system message, and `instruction` follows the current observation. Either may be left out, and
then ours stands there. A word in braces is one of the environment's `prompt_fields`, a text of this
turn; braces around anything else mean themselves.
"""

import argparse
import re
import tomllib
from pathlib import Path

from common.plugins import UserError

PARTS = ("system", "instruction")
FIELD = re.compile(r"\{(\w+)\}")


def prompts_of(path: str | Path) -> dict[str, dict[str, str]]:
    """The type of --prompts: the tables of a file, which args.json records."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # also a file that is no UTF-8
        raise argparse.ArgumentTypeError(f"{path} is not TOML: {error}") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            wanted = "must stand in a table named after an environment, as [babyai]"
            raise argparse.ArgumentTypeError(f"{path}: {name!r} {wanted}")
        if not table:
            wanted = f"{' or '.join(PARTS)}, or both"
            raise argparse.ArgumentTypeError(f"{path}: the table [{name}] must have {wanted}")
        for part, text in table.items():
            if part not in PARTS or not isinstance(text, str):
                choices = f"is unknown; choices: {', '.join(PARTS)}"
                wrong = "must be a text" if part in PARTS else choices
                raise argparse.ArgumentTypeError(f"{path}: [{name}] {part} {wrong}")
    return tables


def check_fields(name: str, table: dict[str, str], fields: dict) -> None:
    """ValueError: a text of the table [name] has a field that is not among `fields`."""
    for part, text in table.items():
        for field in FIELD.findall(text):
            if field not in fields:
                there = ", ".join(f"{{{one}}}" for one in fields)
                raise UserError(f"--prompts: [{name}] {part} has {{{field}}}; choices: {there}")


def filled(table: dict[str, str], env) -> dict[str, str]:
    """Return the texts of a table, with those of the environment for its fields."""

    def text_of(field: re.Match) -> str:
        return env.prompt_fields[field[1]](env)

    return {part: FIELD.sub(text_of, text) for part, text in table.items()}
