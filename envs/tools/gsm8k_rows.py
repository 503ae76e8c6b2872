"""The word problems of GSM8K: where they come from, and which of them an episode plays.

Rows are read from GSM8K's own files, JSONL or parquet, or from others with the columns "question"
and "answer", whose end is "#### N". Without a file they are made by the data set gsm_symbolic of
reasoning-gym.
"""

import functools
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from common.plugins import UserError

HELD_OUT = 10  # of so many rows one is played by the evaluation panel alone
DIGITS = r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+"
# A minus after a digit or a bracket is a subtraction, and one before a blank begins a list.
NUMBER = re.compile(rf"(?:(?<![\w.)])[-−])?\$?(?:(?:{DIGITS})(?:\.[0-9]+)?|\.[0-9]+)")
MARKERS = (re.compile("####"), re.compile("answer:", re.IGNORECASE))
Row = tuple[str, Decimal]  # a question and the number that answers it


def source(data: str | None) -> Callable[[int], Row]:
    """Return the function that gives the row of an episode's seed.

    Seeds of the evaluation panel are odd, and those of training are even. Of a file the panel plays
    every tenth row, in order, and training the others. Rows that are made differ with their seeds.

    data: a file; None: rows are made
    ValueError: it cannot be read or has a bad row; reasoning-gym is not installed
    """
    if data is not None:
        rows = _split(data)
        return lambda seed: rows[seed % 2][seed // 2 % len(rows[seed % 2])]
    try:
        import reasoning_gym
    except ModuleNotFoundError as error:
        raise UserError(
            "gsm8k without --data needs the package reasoning-gym, which makes its rows: "
            f"pip install -e .[reasoning-gym] ({error.name} is missing)"
        ) from error
    return functools.partial(_made, reasoning_gym.create_dataset)


def number_of(text: str) -> Decimal | None:
    """Return the number that a text gives as its answer; None: there is none.

    It is the first one after the last "####", or else after the last "ANSWER:", or else the last
    one. "$1,250.00." reads as 1250.
    """
    text = text.rpartition("</think>")[2]
    for marker in MARKERS:
        if places := [match.end() for match in marker.finditer(text)]:
            found = NUMBER.search(text, places[-1])
            break
    else:
        found = functools.reduce(lambda _, match: match, NUMBER.finditer(text), None)
    return None if found is None else Decimal(re.sub("[$,]", "", found[0].replace("−", "-")))


def _made(create_dataset: Callable, seed: int) -> Row:
    # Of two rows the second: the first draws its numbers from the seed that chose its kind, so
    # they would not be independent.
    row = create_dataset("gsm_symbolic", seed=seed, size=2)[1]
    return row["question"], number_of(row["answer"])


@functools.cache  # many environments read one file
def _split(data: str) -> tuple[list[Row], list[Row]]:
    """Return the rows of a file that train, and those of the panel."""
    path = Path(data)
    if not path.is_file():
        raise UserError(f"--data {path}: there is no such file")
    try:
        named = _of_parquet(path) if path.suffix == ".parquet" else _of_jsonl(path)
    except OSError as error:
        raise UserError(f"--data {path}: {error.strerror or error}") from error
    rows = [_row(value, f"--data {path}, {place}") for place, value in named]
    if len(rows) < 2:
        how_many = "one row" if rows else "no row"
        raise UserError(f"--data {path} holds {how_many}; one trains and one is for evaluations")
    return [row for k, row in enumerate(rows) if k % HELD_OUT], rows[::HELD_OUT]


def _of_jsonl(path: Path) -> list[tuple[str, object]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"--data {path} is not a text in UTF-8") from error
    named = []
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                named.append((f"line {number}", json.loads(line)))
        except ValueError as error:
            raise UserError(f"--data {path}, line {number}: this is not JSON") from error
    return named


def _of_parquet(path: Path) -> list[tuple[str, object]]:
    try:
        from pyarrow.parquet import read_table
    except ModuleNotFoundError as error:
        raise UserError(f"--data {path} needs the package pyarrow, please install it") from error
    try:
        rows = read_table(path).to_pylist()
    except ValueError as error:  # ArrowInvalid
        raise UserError(f"--data {path} is not a parquet file") from error
    return [(f"row {number}", row) for number, row in enumerate(rows, start=1)]


def _row(value, place: str) -> Row:
    """ValueError: this is no row; the line says where"""
    texts = [
        value.get(name) if isinstance(value, dict) else None for name in ("question", "answer")
    ]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(f'{place}: a row needs a "question" and an "answer", which are texts')
    question, answer = texts
    number = number_of(answer) if "####" in answer else None
    if number is None:
        raise UserError(f'{place}: the answer must end in "#### N", where N is a number')
    return question.strip(), number
