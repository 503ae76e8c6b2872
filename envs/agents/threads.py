"""Stops the threads of agent programs whose episodes are over, without lines on the console.

SystemExit is raised in such a thread at once: no `except Exception` of a framework sees it, so that
nothing is retried or logged. After a while it is raised again and again. That ends Python code, but
not C code that hangs, nor a program that catches everything. A worker with too many of these ends
itself and is replaced. The endpoint refuses late requests of the program's other threads (401).
What a stopped program and these threads print about it is dropped.
"""

import ctypes
import logging
import multiprocessing
import os
import sys
import threading
import time
import traceback

from common.awake import awake_seconds
from common.plugins import users_line
from envs.agents.errors import OVER
from envs.errors import Fault

GRACE_SECONDS = 5.0  # that a program has to end by itself
STARTING_MS = 100  # that a program has to start a thread before it is stopped
MAX_LATE = 16  # programs of a process that have not ended after that
TOO_MANY_LATE = 3  # exit code of a worker
CLOSED = "Event loop is closed"

_abandoned: list[tuple[float, threading.Thread]] = []  # awake_seconds() of `abandon`, thread
_lock = threading.Lock()


def abandon(thread: threading.Thread) -> None:
    """Stop the thread of a program before its session is closed; it should end soon."""
    _stop(thread)
    with _lock:
        _abandoned.append((awake_seconds(), thread))


def _stop(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread, when it next runs Python code; not while it starts another.

    CPython 3.11 counts a new thread as the one that starts it, until it runs. SystemExit would end
    the new one, for which the other waits without end.
    """
    for _ in range(STARTING_MS):
        with threading._active_limbo_lock:  # no thread starts, and none takes a dead one's number
            if not thread.is_alive():
                return
            if not _starts_another(thread):
                number, error = ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, error)
                return
        time.sleep(0.001)


def _starts_another(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident)
    stack = traceback.walk_stack(frame) if frame else ()
    return any(each.f_code is threading.Thread.start.__code__ for each, _ in stack)


def report(loop, context: dict) -> None:
    """An exception handler of event loops: it is silent about what the end of an episode caused."""
    if not _is_late(context.get("exception")):
        loop.default_exception_handler(context)


def _is_late(error: BaseException | None) -> bool:
    """Return whether the end of an episode caused an exception.

    It comes from the answer to a late request, from a client of a closed event loop that is
    collected now, or in a thread that was told to stop, where it may follow from SystemExit.
    """
    stopped = threading.current_thread() in [thread for _, thread in list(_abandoned)]
    return stopped or isinstance(error, SystemExit) or OVER in str(error) or CLOSED in str(error)


def _says_over(record: logging.LogRecord) -> bool:
    try:
        return OVER in record.getMessage()
    except Exception:  # a format that does not fit its arguments: logging itself reports that
        return False


def silence_late_programs() -> None:
    """Print no line about ended episodes, from threads and from loggers, whoever handles these."""
    report_error, handle_record = threading.excepthook, logging.Logger.callHandlers

    def hook(args) -> None:
        if not _is_late(args.exc_value):
            report_error(args)

    def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
        raised = record.exc_info[1] if record.exc_info else None
        if not (_says_over(record) or _is_late(raised)):
            handle_record(logger, record)

    threading.excepthook, logging.Logger.callHandlers = hook, handle


def stop_late_programs() -> None:
    """Stop the programs that should have ended. Fault: too many of them hang"""
    now = awake_seconds()
    with _lock:
        _abandoned[:] = [(since, thread) for since, thread in _abandoned if thread.is_alive()]
        late = [thread for since, thread in _abandoned if now - since > GRACE_SECONDS]
    for thread in late:
        _stop(thread)
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
