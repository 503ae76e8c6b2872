"""The lock of a run directory, held by one process. The kernel releases it if the process dies."""

import fcntl
import os
import socket
import time
from contextlib import contextmanager
from pathlib import Path

from common.plugins import UserError
from common.run_file import no_links
from run.files import cannot_write

LOCK = "lock"  # a file in the run directory, which names the process that holds the lock
HELD: set[int] = set()  # file descriptors of the locks that this process holds


@contextmanager
def locked(run: Path):
    """Hold the lock of an existing run directory. At the end, an unused directory is emptied.

    ValueError: another process holds the lock; the message names that process
    """
    descriptor = acquire(run)
    HELD.add(descriptor)
    try:
        yield
    finally:
        # This must come before the release: afterwards another process may hold the lock.
        if run.exists() and is_unused(run):
            for path in run.iterdir():
                path.unlink()
        HELD.discard(descriptor)
        os.close(descriptor)


def acquire(run: Path) -> int:
    """Lock the file, write this process's name into it and return the file descriptor."""
    path = run / LOCK
    try:
        while True:
            descriptor = no_links(path, os.O_RDWR | os.O_CREAT)
            try:
                take(descriptor, run)
                # The last owner may have deleted the file after we opened it.
                if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                    length = os.pwrite(descriptor, this_process().encode(), 0)
                    os.ftruncate(descriptor, length)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
    except OSError as error:
        raise cannot_write(path, error) from error


def take(descriptor: int, run: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
        raise UserError(f"{run} is in use by {owner or 'another process'}") from error
    except OSError as error:
        print(f"{run / LOCK}: {error.strerror}; nothing keeps a second process out of this run")


def this_process() -> str:
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()} since {started}\n"


def is_unused(run: Path) -> bool:
    """Return whether a directory holds no files of a run yet.

    It may hold the lock, and a first args.json whose writing was interrupted.
    """
    return all(path.name in (LOCK, "args.json.tmp") for path in run.iterdir())


def close_in_child() -> None:
    """Release the locks in a forked child, which would hold them after its parent has died."""
    for descriptor in HELD:
        os.close(descriptor)
    HELD.clear()


os.register_at_fork(after_in_child=close_in_child)
