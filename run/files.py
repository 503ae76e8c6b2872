"""Writes files and folders atomically: an interrupted write leaves the previous version."""

import errno
import hashlib
import json
import os
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from common.errors import RunError
from common.plugins import UserError
from common.ranks import ALONE, Ranks
from common.run_file import open_file, rewritten

NO_SUCH_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


@contextmanager
def written_aside(folder: Path, ranks: Ranks = ALONE):
    """`with written_aside(folder) as aside:` the ranks write into `aside`, which becomes `folder`.

    RunError: it could not be written; `folder` is unchanged
    """
    aside = folder.with_name(folder.name + ".tmp")
    try:
        if ranks.rank == 0:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        ranks.wait()
        yield aside
        ranks.wait()
        if ranks.rank == 0:
            mode = aside.stat().st_mode & 0o666  # what the umask wants; safetensors writes 0600
            for path in aside.rglob("*"):
                if path.is_file():
                    path.chmod(mode)
                sync(path)
            replace(folder, aside)
        ranks.wait()
    except RunError:  # another rank has ended
        raise
    except Exception as error:
        shutil.rmtree(aside, ignore_errors=True)
        if not is_about_files(error):
            raise
        raise not_written(folder, reason_of(error)) from error


def is_about_files(error: Exception) -> bool:
    """Return whether a file could not be written. Libraries wrap OSError: torch in a RuntimeError,
    tokenizers in a plain Exception."""
    known = isinstance(error, OSError | RuntimeError | SafetensorError)
    return known or "(os error " in str(error)


def reason_of(error: Exception) -> str:
    """Return why a file could not be written, as far as the library tells it."""
    reasons = [e.strerror for e in (error, error.__context__) if isinstance(e, OSError)]
    if not reasons and "enforce fail" in str(error):  # torch.save; it names no reason
        reasons = ["not all of it was written (is the disk full?)"]
    return reasons[0] if reasons else str(error)


def replace(folder: Path, aside: Path) -> None:
    """Rename `aside` to `folder`. The previous folder is moved to `.old` and then deleted.

    A process that dies between the two renames leaves only `.old`; `recover` renames it back.
    """
    old = folder.with_name(folder.name + ".old")
    if os.path.lexists(old):
        discard(old)
    if folder.is_symlink():
        print(f"{folder} was a link to {os.readlink(folder)}; that place stays as it is")
    if os.path.lexists(folder):
        folder.rename(old)
    try:
        aside.rename(folder)
    except OSError:
        if os.path.lexists(old):
            old.rename(folder)
        raise
    sync(folder.parent)
    if os.path.lexists(old):
        discard(old)


def recover(parent: Path, pattern: str) -> None:
    """Clean up after interrupted calls of `replace` and `discard`.

    `NAME.old` is renamed back if there is no NAME. Other leftovers are deleted.
    pattern: matches the names of the folders in `parent`
    """
    for old in parent.glob(f"{pattern}.old"):
        folder = old.with_suffix("")
        if os.path.lexists(folder):
            discard(old)
        else:
            old.rename(folder)
            print(f"{folder} is there again: an interrupted save had moved it to {old.name}")
    for end in (".tmp", ".trash*", ".old.trash*"):
        for leftover in parent.glob(pattern + end):
            remove(leftover)


def remove_unfinished(folder: Path) -> None:
    """Delete the small files that a killed process was rewriting in `folder`."""
    for end in (".json", ".jsonl", ".md"):
        for leftover in folder.glob(f"*{end}.tmp"):
            remove(leftover)


def leftovers(run: Path) -> list[Path]:
    """Return what a killed process has left in a run directory, and perhaps files of the user's
    that have such names."""
    folders = [run, run / "model", run / "checkpoints"]
    paths = [path for folder in folders for path in sorted(folder.glob("*"))]
    return [path for path in paths if re.search(r"\.(tmp|old|trash(-\d+)?)$", path.name)]


def remove(path: Path) -> None:
    """Delete a file, a link or a folder, as far as that is possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def discard(path: Path) -> None:
    """Delete a folder or a link. If that fails, print a line and leave it under another name.

    The rename comes first, so that no reader finds a half-deleted folder.
    """
    trash = free_name(path, ".trash")
    try:
        path.rename(trash)
        trash.unlink() if trash.is_symlink() else shutil.rmtree(trash)
    except OSError as error:
        left = trash if os.path.lexists(trash) else path
        print(f"cannot delete {left}: {error.strerror}; the run goes on")


def free_name(path: Path, end: str) -> Path:
    """Return `path` + `end`; if it exists, the first free one of `path` + `end` + -2, -3, ..."""
    free, number = path.with_name(path.name + end), 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}{end}-{number}")
    return free


def write_text(path: Path, text: str) -> None:
    """Replace a small file. RunError: it cannot be written; it is unchanged"""
    try:
        with rewritten(path, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise not_written(path, error.strerror) from error


def append(path: Path, text: str) -> None:
    """Add lines to a log. RunError: they cannot be written; the log is unchanged"""
    size = path.stat().st_size if path.exists() else 0
    try:
        with open_file(path, "a", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        with suppress(OSError):
            os.truncate(path, size)
        raise not_written(path, error.strerror) from error


def append_records(path: Path, update: int, records: list[dict]) -> None:
    """Add each record to a log as a JSON line that begins with `update`. RunError: see `append`"""
    append(path, "".join(json.dumps({"update": update} | record) + "\n" for record in records))


def not_written(path: Path, reason: str) -> RunError:
    return RunError(f"cannot write {path}: {reason}; what was saved before is whole")


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def cannot_write(path: Path, error: OSError) -> ValueError | RunError:
    """Return the error to raise: a UserError for a path that cannot exist, and a RunError for a
    full disk or a missing permission."""
    line = f"cannot write to {path}: {error.strerror}"
    if error.errno in NO_SUCH_PLACE:
        return UserError(line)
    return RunError(f"{line}; what was saved before is whole")
