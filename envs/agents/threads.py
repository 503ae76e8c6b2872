"""Stops the threads of agent programs whose episodes are over.

The endpoint refuses the requests of such a program (401), and most programs end then. If one does
not, SystemExit is raised in its thread after a while, again and again. That ends Python code, but
not C code that hangs, nor a program that catches everything. A worker with too many of these ends
itself and is replaced.
"""

import ctypes
import multiprocessing
import os
import sys
import threading
import traceback

from common.awake import awake_seconds
from common.plugins import users_line
from envs.errors import Fault

GRACE_SECONDS = 5.0  # that a program has to end by itself
MAX_LATE = 16  # programs of a process that have not ended after that
TOO_MANY_LATE = 3  # exit code of a worker

_abandoned: list[tuple[float, threading.Thread]] = []  # awake_seconds() of `abandon`, thread
_lock = threading.Lock()


def abandon(thread: threading.Thread) -> None:
    """Add the thread of a program whose session is closed; it should end soon."""
    with _lock:
        _abandoned.append((awake_seconds(), thread))


def stop_late_programs() -> None:
    """Stop the programs that should have ended. Fault: too many of them hang"""
    now = awake_seconds()
    with _lock:
        _abandoned[:] = [(since, thread) for since, thread in _abandoned if thread.is_alive()]
        late = [thread for since, thread in _abandoned if now - since > GRACE_SECONDS]
    for thread in late:
        # The exception is raised when the thread next runs Python code.
        number, error = ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
    if len(late) >= MAX_LATE:
        if multiprocessing.parent_process() is not None:
            os._exit(TOO_MANY_LATE)
        message = f"{location_of(late[0])}{len(late)} programs of earlier episodes do not end; "
        raise Fault(f"{message}--env-workers have processes, which are replaced")


def location_of(thread: threading.Thread) -> str:
    """Return "file:line: " of the user's code that a thread is running, or ""."""
    frame = sys._current_frames().get(thread.ident)
    stack = traceback.extract_stack(frame) if frame else []
    locations = [users_line(f.filename, f.lineno) for f in reversed(stack)]
    return next(filter(None, locations), "")
