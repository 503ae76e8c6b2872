"""Opens files of a run directory, which somebody else may have made, without following links.

A link in it may lead to any file of the user's: reading it would show that file, or push it to the
hub, and writing to it would destroy it.
"""

import errno
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def open_file(path: Path, mode: str = "r", **options) -> IO:
    """Open a file as `open` does. OSError: it is a link, or cannot be opened"""
    return open(path, mode, opener=no_links, **options)


def read_text(path: Path, errors: str = "strict") -> str:
    with open_file(path, encoding="utf-8", errors=errors) as file:
        return file.read()


def read_jsonl(path: Path) -> list[dict | None]:
    """Return the objects of a .jsonl file, None for other lines. NaN and Infinity become None."""
    lines = []
    for line in read_text(path, errors="replace").strip().splitlines():
        try:
            value = json.loads(line, parse_constant=lambda name: None)
        except (ValueError, RecursionError):
            value = None
        lines.append(value if isinstance(value, dict) else None)
    return lines


def is_finite(value) -> bool:
    """Return whether a value is a number that numpy can hold, too."""
    if isinstance(value, int):
        return abs(value) < 2**63
    return isinstance(value, float) and math.isfinite(value)


def no_links(path: str | Path, flags: int) -> int:
    """Return a file descriptor. OSError: see `open_file`"""
    try:  # O_NONBLOCK: a pipe with this name would block for ever
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a link, which is not followed", path) from error
        raise


@contextmanager
def rewritten(path: Path, mode: str = "w", **options) -> Iterator[IO]:
    """`with rewritten(path) as file:` what is written into `file` replaces `path` at the end.

    A link with this name is replaced. A device (--out /dev/null) is written to.
    """
    if path.exists() and not (path.is_file() or path.is_symlink()):
        with open(path, mode, **options) as file:
            yield file
        return
    aside = path.with_name(f"{path.name}.tmp")
    aside.unlink(missing_ok=True)
    try:
        with open(aside, mode.replace("w", "x"), **options) as file:  # "x" follows no link
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def links_in(folder: Path) -> list[Path]:
    """Return the links among a folder, its files and the folders in it."""
    return [path for path in (folder, *sorted(folder.rglob("*"))) if path.is_symlink()]
