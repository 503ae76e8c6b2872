"""The word problems of GSM8K: reads or generates them, and chooses an episode's row.

Rows come from GSM8K's own files, JSONL or parquet, or from others with the columns "question" and
"answer", which ends in "#### N". Without a file, reasoning-gym's dataset gsm_symbolic generates
them.
"""

import functools
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from common.plugins import UserError

HELD_OUT = 10  # one of so many rows is used in evaluations only
DIGITS = r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+"
# A minus after a digit or a bracket is a subtraction, and one before a blank is a list's bullet.
NUMBER = re.compile(rf"(?:(?<![\w.)])[-−])?\$?(?:(?:{DIGITS})(?:\.[0-9]+)?|\.[0-9]+)")
MARKERS = (re.compile("####"), re.compile("answer:", re.IGNORECASE))
Row = tuple[str, Decimal]  # a question and the number that answers it


def source(data: str | None) -> Callable[[int], Row]:
    """Return a function from an episode's seed to its row.

    Evaluation seeds are odd and training seeds are even. Evaluations play every tenth row of a
    file, in order, and training plays the others. Each seed generates another row.

    data: a file; None: rows are generated
    UserError: the file cannot be read or has a bad row, or reasoning-gym is not installed
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
    return functools.partial(_generate, reasoning_gym.create_dataset)


def number_of(text: str) -> Decimal | None:
    """Return the number that a text gives as its answer, or None if it has no number.

    It is the first number after the last "####", or else after the last "ANSWER:", or else the
    text's last number. "$1,250.00." reads as 1250.
    """
    text = text.rpartition("</think>")[2]
    for marker in MARKERS:
        if ends := [match.end() for match in marker.finditer(text)]:
            found = NUMBER.search(text, ends[-1])
            break
    else:
        numbers = list(NUMBER.finditer(text))
        found = numbers[-1] if numbers else None
    return None if found is None else Decimal(re.sub("[$,]", "", found[0].replace("−", "-")))


def _generate(create_dataset: Callable, seed: int) -> Row:
    # The second of two rows: the first one's numbers are drawn from the same seed as its template,
    # so they would not be independent.
    row = create_dataset("gsm_symbolic", seed=seed, size=2)[1]
    return row["question"], number_of(row["answer"])


@functools.cache  # many environments read one file
def _split(data: str) -> tuple[list[Row], list[Row]]:
    """Return a file's training rows and its evaluation rows."""
    path = Path(data)
    if not path.is_file():
        raise UserError(f"--data {path}: there is no such file")
    try:
        read = _read_parquet if path.suffix == ".parquet" else _read_jsonl
        located = read(path)
    except OSError as error:
        raise UserError(f"--data {path}: {error.strerror or error}") from error
    rows = [_row(value, f"--data {path}, {location}") for location, value in located]
    if len(rows) < 2:
        count = "one row" if rows else "no row"
        needed = "training and evaluations need one each"
        raise UserError(f"--data {path} holds {count}; {needed}")
    return [row for k, row in enumerate(rows) if k % HELD_OUT], rows[::HELD_OUT]


def _read_jsonl(path: Path) -> list[tuple[str, object]]:
    """Return (location, value) of each line that is not empty."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"--data {path} is not a text in UTF-8") from error
    located = []
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                located.append((f"line {number}", json.loads(line)))
        except ValueError as error:
            raise UserError(f"--data {path}, line {number}: this is not JSON") from error
    return located


def _read_parquet(path: Path) -> list[tuple[str, object]]:
    """Return (location, value) of each row."""
    try:
        from pyarrow.parquet import read_table
    except ModuleNotFoundError as error:
        raise UserError(f"--data {path} needs the package pyarrow, please install it") from error
    try:
        rows = read_table(path).to_pylist()
    except ValueError as error:  # ArrowInvalid
        raise UserError(f"--data {path} is not a parquet file") from error
    return [(f"row {number}", row) for number, row in enumerate(rows, start=1)]


def _row(value, location: str) -> Row:
    """Return a row after checking it. UserError: it is not one; the message says where"""
    row = value if isinstance(value, dict) else {}
    texts = [row.get(name) for name in ("question", "answer")]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise UserError(f'{location}: a row needs a "question" and an "answer", which are texts')
    question, answer = texts
    number = number_of(answer) if "####" in answer else None
    if number is None:
        raise UserError(f'{location}: the answer must end in "#### N", where N is a number')
    return question.strip(), number
