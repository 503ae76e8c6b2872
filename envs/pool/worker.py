"""A process in which several environments live.

An environment's failure is an answer like any other. The process ends on request and with its
parent, even while an environment hangs. `envs.pool.vec_env` decides what follows if it dies early.
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
from multiprocessing.connection import Connection

from envs.contract import Fault, start_error
from envs.pool.seat import Seat

START = -1  # stands for an environment's index in a worker's first answer: all of them are made
START_SECONDS = 300  # minimum time for that answer, because imports may be slow


class Worker:
    """The parent's end of a process with the environments `owned`. Answers come in order.

    timeout: seconds for one answer
    asked: environments whose answers are still to come, in order; START before all others
    unsent: environments whose requests came too late for the process to read
    """

    def __init__(self, make: Callable, owned: list[int], timeout: float):
        self.make, self.owned, self.timeout = make, owned, timeout
        self.start()

    def start(self) -> None:
        self.asked, self.unsent, self.hung = deque([START]), [], False
        self.connection, self.process = _spawn(self.make, self.owned)
        self.since = time.monotonic()  # when it began with the first of `asked`

    def ask(self, i: int, method: str, *args) -> None:
        room = select.poll()
        room.register(self.connection, select.POLLOUT)
        if not room.poll(1000 * min(max(self.left, 0), self.timeout, 10**6)):
            self.kill()  # C code that hangs also stops the thread that empties the pipe
        try:
            self.connection.send((i, method, args))
        except OSError:
            return self.unsent.append(i)
        if not self.asked:
            self.since = time.monotonic()
        self.asked.append(i)

    def receive(self):
        """The next answer, (i, answer). Raises EOFError or OSError if the process has died."""
        i, answer = self.connection.recv()
        assert i == self.asked[0], f"environment {i} answered before {self.asked[0]}"
        self.asked.popleft()
        self.since = time.monotonic()
        return i, answer

    @property
    def starting(self) -> bool:
        return START in self.asked

    @property
    def limit(self) -> float:
        return max(self.timeout, START_SECONDS) if self.starting else self.timeout

    @property
    def left(self) -> float:
        """Seconds until the process counts as hanging."""
        return self.since + self.limit - time.monotonic() if self.asked else math.inf

    def kill(self) -> None:
        """Kill a process that hangs. Its earlier answers are still in the pipe, before its end."""
        self.hung = True
        self.process.kill()

    def fault(self) -> Fault:
        """Why the process ended."""
        self.process.join(timeout=5)
        if self.hung:
            return Fault(f"no answer within {self.limit:g} s, its worker was killed")
        return Fault(f"its worker died with exit code {self.process.exitcode}")

    def discard(self) -> None:
        self.process.kill()
        self.process.join(timeout=5)
        atexit.unregister(self.process.kill)  # it would keep the process's file descriptors
        self.connection.close()

    def stop(self) -> None:
        """Ask the process to close its environments and end."""
        with contextlib.suppress(OSError):  # it has ended already
            self.connection.send(None)

    def join(self, deadline: float) -> None:
        """Wait until the process ends or time.monotonic() reaches `deadline`, then discard it."""
        with contextlib.suppress(EOFError, OSError):
            while self.connection.poll(max(0, deadline - time.monotonic())):
                self.connection.recv()  # an answer that nobody reads may block it
        if time.monotonic() < deadline:
            self.process.join(timeout=1)
        self.discard()


def _spawn(make: Callable, owned: list[int]):
    """Start a process; returns (connection, process). It sends (START, None) or (START, exception),
    then answers (i, method of Seat, arguments) with (i, result) until it gets None."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_work, args=(there, make, owned, os.getpid()), daemon=True)
    # A spawned process imports its parent's __main__: main.py, and with it torch, for nothing.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    there.close()  # now the pipe ends when the worker dies
    atexit.register(process.kill)  # multiprocessing would send SIGTERM and wait
    return here, process


def _work(connection: Connection, make: Callable, owned: list[int], parent: int) -> None:
    # The parent obeys these signals. Programs of an environment would inherit SIG_IGN.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    _die_with(parent)
    inbox = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        seats = {i: Seat(make) for i in owned}
    except Exception as error:
        return connection.send((START, start_error(make, error)))
    connection.send((START, None))
    while (request := _next(inbox, seats)) is not None:
        i, method, args = request
        connection.send((i, seats[i].call(method, *args)))
    for seat in seats.values():
        seat.close()


def _next(inbox: queue.SimpleQueue, seats: dict[int, Seat]):
    """The next request. Until it comes, environments prepare their next episodes."""
    for seat in seats.values():
        if not inbox.empty():
            break
        seat.prepare()
    return inbox.get()


def _die_with(parent: int) -> None:
    """Make the kernel kill this process when its parent dies."""
    if sys.platform == "linux":  # `_read` sees it too, but not while an environment hangs in C code
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
        if os.getppid() != parent:  # the parent died before the call
            os._exit(0)


def _read(connection: Connection, inbox: queue.SimpleQueue) -> None:
    """A thread that empties the pipe, so that a busy environment does not block the parent."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone; an environment that hangs must not outlive it
        inbox.put(message)
        if message is None:
            return
