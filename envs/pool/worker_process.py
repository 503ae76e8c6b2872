"""A process in which several environments live: its start, its loop and its end.

An environment's failure is an answer like any other. The process ends on request or with its
parent, even while an environment hangs.
"""

import atexit
import ctypes
import multiprocessing
import os
import queue
import signal
import sys
import threading
import types
from collections.abc import Callable
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from common.signals import ENDING
from envs.pool.fork_server import start_process
from envs.pool.host import EnvHost


def spawn(make: Callable, owned: list[int]):
    """Start a process with the environments `owned`; return (connection, process)."""
    ours, theirs = multiprocessing.Pipe()
    resource_tracker.ensure_running()  # its start unblocks the signals that are blocked later
    # A new process imports its parent's __main__: main.py, and with it torch, for nothing.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:  # it is not daemonic: environments may start processes of their own
        process = start_process(make, target=_work, args=(theirs, make, owned))
    finally:
        sys.modules["__main__"] = main
    theirs.close()  # now the pipe ends when the worker dies
    atexit.register(process.kill)  # multiprocessing would wait until it ends by itself
    return ours, process


def _work(connection: Connection, make: Callable, owned: list[int]) -> None:
    # The parent handles these signals and saves the run. A handler, because an environment's
    # programs would inherit SIG_IGN.
    for number in ENDING:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    # A new process would ignore a signal that comes before `_forked`, so the signal would be lost.
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, ENDING),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, ENDING),
        after_in_child=partial(_forked, connection),
    )
    die_with_parent()
    inbox = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    serve({i: EnvHost(make) for i in owned}, inbox, connection.send)


def _ignore(number: int, frame) -> None:
    """A signal handler that does nothing."""


def _forked(connection: Connection) -> None:
    """Undo a worker's settings in a process that an environment has forked."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    connection.close()


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent dies."""
    if sys.platform == "linux":  # `_read` sees it too, but not while an environment hangs in C code
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def _read(connection: Connection, inbox: queue.SimpleQueue) -> None:
    """Empty the pipe, in a thread, so that a busy environment does not block the parent."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone; a hanging environment must not outlive it
        inbox.put(message)
        if message is None:
            return


def serve(hosts: dict[int, EnvHost], inbox: queue.SimpleQueue, answer: Callable) -> None:
    """Answer the requests (i, method of EnvHost, arguments) with (i, result) until None comes."""
    while (request := _next(inbox, hosts)) is not None:
        i, method, args = request
        answer((i, hosts[i].call(method, *args)))
    for host in hosts.values():
        host.close()


def _next(inbox: queue.SimpleQueue, hosts: dict[int, EnvHost]):
    """Return the next request. Until it comes, environments prepare their next episodes."""
    for host in hosts.values():
        if not inbox.empty():
            break
        host.prepare()
    return inbox.get()
