"""Writes files and folders so that whatever interrupts a write leaves what was there before."""

import errno
import hashlib
import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from common.errors import RunError
from common.plugins import UserError
from common.ranks import ALONE, Ranks

NO_SUCH_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


@contextmanager
def written_aside(folder: Path, ranks: Ranks = ALONE):
    """`with written_aside(folder) as aside:` what the ranks write into `aside` becomes `folder`.

    RunError: it could not be written, and `folder` is as it was
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
            for path in aside.rglob("*"):
                sync(path)
            replace(folder, aside)
        ranks.wait()
    except RunError:  # another rank has ended
        raise
    except (OSError, RuntimeError, SafetensorError) as error:  # torch wraps OSError
        shutil.rmtree(aside, ignore_errors=True)
        reasons = [e.strerror for e in (error, error.__context__) if isinstance(e, OSError)]
        raise not_written(folder, reasons[0] if reasons else str(error)) from error


def replace(folder: Path, aside: Path) -> None:
    """Rename `aside` to `folder`; what was there before is moved to `.old` and then deleted.

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
    """Rename `NAME.old` back where an interrupted `replace` left no NAME; delete its other traces.

    pattern: matches the names of the folders in `parent`
    """
    for old in parent.glob(f"{pattern}.old"):
        folder = old.with_suffix("")
        if os.path.lexists(folder):
            discard(old)
        else:
            old.rename(folder)
            print(f"{folder} is there again: an interrupted save had moved it to {old.name}")
    for trace in [*parent.glob(f"{pattern}.tmp"), *parent.glob(f"{pattern}.trash*")]:
        shutil.rmtree(trace, ignore_errors=True)


def discard(path: Path) -> None:
    """Delete a folder or a link. What cannot be deleted gets a name that nothing reads, and a line.

    The rename comes first, so that a reader never meets a folder that is half deleted.
    """
    trash = free_name(path, ".trash")
    try:
        path.rename(trash)
        trash.unlink() if trash.is_symlink() else shutil.rmtree(trash)
    except OSError as error:
        left = trash if os.path.lexists(trash) else path
        print(f"cannot delete {left}: {error.strerror}; the run goes on")


def free_name(path: Path, end: str) -> Path:
    """`path` with `end`, or with `end` and the first number from 2 that is free."""
    free, number = path.with_name(path.name + end), 1
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}{end}-{number}")
    return free


def write_text(path: Path, text: str) -> None:
    """Replace a small file. RunError: it cannot be written, and is as it was"""
    aside = path.with_name(path.name + ".tmp")
    try:
        aside.write_text(text, encoding="utf-8")
        sync(aside)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise not_written(path, error.strerror) from error


def append(path: Path, text: str) -> None:
    """Add lines to a log. RunError: they cannot be written, and the log is as it was"""
    size = path.stat().st_size if path.exists() else 0
    try:
        with open(path, "a", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        with suppress(OSError):
            os.truncate(path, size)
        raise not_written(path, error.strerror) from error


def append_records(path: Path, update: int, records: list[dict]) -> None:
    """Add each record to a log, as a JSON line that begins with `update`. RunError: as `append`"""
    append(path, "".join(json.dumps({"update": update} | record) + "\n" for record in records))


def not_written(path: Path, reason: str) -> RunError:
    return RunError(f"cannot write {path}: {reason}; what was saved before is whole")


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, onto the disk."""
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
    """Return the error to raise: a path that makes no sense is the user's mistake, and a full disk
    or a missing permission is not."""
    line = f"cannot write to {path}: {error.strerror}"
    if error.errno in NO_SUCH_PLACE:
        return UserError(line)
    return RunError(f"{line}; what was saved before is whole")
