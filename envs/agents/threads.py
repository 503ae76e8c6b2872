"""The threads of agent programs whose episodes are over: they end, or no more are begun.

A program learns from the endpoint that its episode is over (401), and most end then. One that
waits for something, or goes on whatever is answered, gets SystemExit raised in it after a while,
again and again. That ends Python code, but not C code that hangs, nor a program that catches
everything. A worker with too many of those ends itself and is replaced.
"""

import ctypes
import multiprocessing
import os
import sys
import threading
import time
import traceback

from common.plugins import users_line
from envs.contract import Fault

PATIENCE = 5.0  # seconds that a program has to end by itself
MOST = 16  # programs of a process that have not ended after that
GAVE_UP = 3  # exit code of a worker

_left: list[tuple[float, threading.Thread]] = []  # since when; those that are still alive
_lock = threading.Lock()


def leave(thread: threading.Thread) -> None:
    """Leave a program whose session is closed to itself."""
    with _lock:
        _left.append((time.monotonic(), thread))


def make_room() -> None:
    """Stop the programs that should have ended. Fault: too many of them hang to begin another"""
    now = time.monotonic()
    with _lock:
        _left[:] = [(since, thread) for since, thread in _left if thread.is_alive()]
        late = [thread for since, thread in _left if now - since > PATIENCE]
    for thread in late:
        # It is raised when the thread next runs Python code.
        number, error = ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
    if len(late) >= MOST:
        if multiprocessing.parent_process() is not None:
            os._exit(GAVE_UP)
        said = f"{place_of(late[0])}{len(late)} programs of earlier episodes do not end; "
        raise Fault(f"{said}--env-workers have processes, which are replaced")


def place_of(thread: threading.Thread) -> str:
    """Return "file:line: " of the user's code that a thread runs, or ""."""
    frame = sys._current_frames().get(thread.ident)
    stack = traceback.extract_stack(frame) if frame else []
    places = [users_line(f.filename, f.lineno) for f in reversed(stack)]
    return next(filter(None, places), "")
