"""A process in which several environments live.

An environment's failure is an answer like any other. The process ends on request or with its
parent, even while an environment hangs. `envs.pool.executors` replaces a process that dies early.
"""

import atexit
import contextlib
import ctypes
import math
import multiprocessing
import os
import queue
import select
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from common.awake import TICK_SECONDS, awake_seconds
from common.signals import ENDING
from envs.errors import Fault
from envs.pool.host import EnvHost

START_SECONDS = 300  # minimum time for an environment's first answer, because imports may be slow


class Worker:
    """The parent's end of a process with the environments `owned`. Answers come in order.

    timeout: seconds for one answer in which this process was awake
    asked: environments whose answers are still to come, in order
    made: environments that have answered
    """

    def __init__(self, make: Callable, owned: list[int], timeout: float):
        self.make, self.owned, self.timeout = make, owned, timeout
        self.start()

    def start(self) -> None:
        self.asked, self.made, self.hung = deque(), set(), False
        self.connection, self.process = _spawn(self.make, self.owned)
        self.since = awake_seconds()  # when the process began with the first of `asked`

    def ask(self, i: int, method: str, *args) -> None:
        if not self._is_writable():
            self.kill()  # hanging C code also blocks the thread that empties the pipe
        try:
            self.connection.send((i, method, args))
        except OSError:  # the process is dead; the request is repeated after its restart
            return
        if not self.asked:
            self.since = awake_seconds()
        self.asked.append(i)

    def receive(self):
        """Return the next answer, (i, answer). EOFError or OSError: the process has died"""
        i, answer = self.connection.recv()
        assert i == self.asked[0], f"environment {i} answered before {self.asked[0]}"
        self.made.add(self.asked.popleft())
        self.since = awake_seconds()
        return i, answer

    @property
    def dead(self) -> bool:
        """Whether the process has ended. Its pipe may stay open in a process that it started."""
        return self.process.exitcode is not None

    @property
    def limit(self) -> float:
        """Seconds for the next answer. The first one of an environment may take longer."""
        made = not self.asked or self.asked[0] in self.made
        return self.timeout if made else max(self.timeout, START_SECONDS)

    @property
    def left(self) -> float:
        """Seconds until the process counts as hanging."""
        return self.since + self.limit - awake_seconds() if self.asked else math.inf

    def kill(self) -> None:
        """Kill a process that hangs. Its earlier answers are still in the pipe, before its end."""
        self.hung = True
        self.process.kill()

    def fault(self) -> Fault:
        """Return why the process ended."""
        self._wait(5)
        if self.hung:
            return Fault(f"no answer within {self.limit:g} s, its worker was killed")
        return Fault(f"its worker died with exit code {self.process.exitcode}")

    def discard(self) -> None:
        """Kill the process and close its pipe."""
        self.process.kill()
        self._wait(5)
        atexit.unregister(self.process.kill)  # it would keep the process's file descriptors
        self.connection.close()

    def stop(self) -> None:
        """Ask the process to close its environments and end."""
        with contextlib.suppress(OSError):  # it has ended already
            self.connection.send(None)

    def join(self, deadline: float) -> None:
        """Wait until the process ends or time.monotonic() reaches `deadline`, then discard it."""
        with contextlib.suppress(EOFError, OSError):
            while not self.dead and time.monotonic() < deadline:
                if self.connection.poll(0.05):
                    self.connection.recv()  # an unread answer may block the process
        if time.monotonic() < deadline:
            self._wait(1)
        self.discard()

    def _is_writable(self) -> bool:
        """Return whether the pipe takes a request before the process counts as hanging."""
        pipe = select.poll()
        pipe.register(self.connection, select.POLLOUT)
        end = awake_seconds() + min(max(self.left, 0), self.timeout)
        while not (events := pipe.poll(1000 * TICK_SECONDS)) and awake_seconds() < end:
            pass
        return bool(events)

    def _wait(self, seconds: float) -> None:
        # Process.join would also wait for the processes that the environments have started.
        deadline = time.monotonic() + seconds
        while not self.dead and time.monotonic() < deadline:
            time.sleep(0.005)


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


def _spawn(make: Callable, owned: list[int]):
    """Start a process; return (connection, process)."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    # It is not daemonic: environments may start processes of their own.
    process = spawn.Process(target=_work, args=(theirs, make, owned, os.getpid()))
    resource_tracker.ensure_running()  # its start would unblock the signals that are blocked below
    # A spawned process imports its parent's __main__: main.py, and with it torch, for nothing.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until `_work` ignores them
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        sys.modules["__main__"] = main
    theirs.close()  # now the pipe ends when the worker dies
    atexit.register(process.kill)  # multiprocessing would wait until it ends by itself
    return ours, process


def _work(connection: Connection, make: Callable, owned: list[int], parent: int) -> None:
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
    _die_with(parent)
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


def _die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent dies."""
    if sys.platform == "linux":  # `_read` sees it too, but not while an environment hangs in C code
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
        if os.getppid() != parent:  # the parent died before the call
            os._exit(0)


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
