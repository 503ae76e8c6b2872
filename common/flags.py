"""Command-line flags from dataclasses: a field is a flag, and its type says which values it takes.

    @dataclass
    class Update:
        lr: Unit = flag(1e-6, "learning rate of the actor")

declares `--lr X  learning rate of the actor (default: 1e-06)`, a number in [0, 1]. Name, type,
range, default and help of a flag stand on this one line and nowhere else.
"""

import argparse
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from types import NoneType, UnionType
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

from common.plugins import UserError


@dataclass(frozen=True)
class Range:
    """The numbers that a flag takes. `words` describes them in an error message."""

    words: str
    allows: Callable[[float], bool]


MANY, INF = 10**9, float("inf")
# nan is in none of these ranges: each comparison with it is false.
COUNT = Range(f"from 1 to {MANY}", lambda x: 1 <= x <= MANY)
Count = Annotated[int, COUNT]
CountOrNone = Annotated[int | None, COUNT]
Whole = Annotated[int, Range(f"from 0 to {MANY}", lambda x: 0 <= x <= MANY)]
Seed = Annotated[int, Range("from 0 to 2**32 - 1", lambda x: 0 <= x < 2**32)]
Unit = Annotated[float, Range("in [0, 1]", lambda x: 0 <= x <= 1)]
Share = Annotated[float, Range("in (0, 1]", lambda x: 0 < x <= 1)]
Coefficient = Annotated[float, Range("at least 0 and finite", lambda x: 0 <= x < INF)]
TargetOrNone = Annotated[float | None, Range("above 0 and finite", lambda x: 0 < x < INF)]
RatioOrNone = Annotated[float | None, Range("at least 1", lambda x: x >= 1)]
Bound = Annotated[float, Range("above 0 (inf: off)", lambda x: x > 0)]
FirstWeight = Annotated[float, Range("above 0 (inf: first tokens alone)", lambda x: x > 0)]
Temperature = Annotated[
    float, Range("0 or from 0.001 to 1000", lambda x: x == 0 or 0.001 <= x <= 1000)
]


def flag(default, help: str, **options):
    """Return a dataclass field that is a flag. `options` are those of `add_argument`."""
    metadata = {"help": help, **options}
    if isinstance(default, dict):  # dataclasses refuse a mutable default
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def defaults_of(part: type) -> dict:
    """Return name -> default of a part's flags."""
    return {
        each.name: each.default_factory() if each.default is MISSING else each.default
        for each in fields(part)
    }


def add_flags(parser: argparse.ArgumentParser, part: type) -> None:
    """Add a part's fields to a parser, as a group with the part's docstring as its title.

    The parsed namespace holds the flags that are given and no others: defaults depend on them.
    """
    group = parser.add_argument_group(part.__doc__.rstrip("."))
    hints = get_type_hints(part, include_extras=True)
    for each in fields(part):
        kind, options = value_type(hints[each.name]), dict(each.metadata)
        if get_origin(kind) is Literal:
            options["choices"] = get_args(kind)
            options["type"] = type(get_args(kind)[0])
        elif kind is bool:
            options["action"] = "store_true"
        else:
            options.setdefault("type", kind)
        group.add_argument(spelled(each.name), default=argparse.SUPPRESS, **options)


def value_type(hint):
    """Return the type of a flag's value when it is typed: int for `Annotated[int | None, ...]`."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if isinstance(hint, UnionType) and len(kinds) == 1 else hint


def check_ranges(part) -> None:
    """Raise a UserError if a number is outside the range of its type."""
    for name, hint in get_type_hints(type(part), include_extras=True).items():
        value = getattr(part, name)
        for limits in get_args(hint):
            if isinstance(limits, Range) and value is not None and not limits.allows(value):
                raise UserError(f"{spelled(name)} must be {limits.words}, got {value}")


def check_kinds(part: type, values: dict, source: str) -> None:
    """Raise a UserError if a value that `source` has is of another kind than its flag takes."""
    for name, hint in get_type_hints(part).items():
        if name in values and not fits(values[name], hint):
            raise UserError(f"{source}: {name} cannot be {values[name]!r}")


def fits(value, hint) -> bool:
    """Return whether a flag whose type is `hint` takes a value, whatever its range is."""
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) is Literal:
        return value in kinds
    if isinstance(value, bool):  # which is an int in Python
        return bool in kinds
    return isinstance(value, (*kinds, int) if float in kinds else kinds)


def spelled(name: str) -> str:
    """Return a flag as it is typed: --n-env for n_env."""
    return f"--{name.replace('_', '-')}"
