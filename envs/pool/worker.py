"""A process in which several environments live.

What fails in an environment is an answer like any other; the process lives on. It ends on request
and with its parent, even while an environment hangs. Who is to blame when it dies, and what becomes
of the others then, is decided in `envs.pool.vec_env`.
"""

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
import traceback
import types
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection

from envs.pool.slot import EnvError, Fault, Slot, name_of

START = -1  # in the place of an environment: a worker's first answer, that all of them are made
START_SECONDS = 300  # that a process has for it, however short the timeout: imports may be slow
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


class Worker:
    """The parent's end of a process with the environments `owned`; it answers in order.

    timeout: seconds for one answer
    asked: whose requests it has not answered yet; START before all others
    unsent: whose requests it did not live to see
    """

    def __init__(self, make: Callable, owned: list[int], timeout: float):
        self.make, self.owned, self.timeout = make, owned, timeout
        self.start()

    def start(self) -> None:
        self.asked, self.unsent, self.late = deque([START]), [], False
        self.connection, self.process = _spawn(self.make, self.owned)
        self.since = time.monotonic()  # when it began with the first of `asked`

    def ask(self, i: int, method: str, *args) -> None:
        room = select.poll()
        room.register(self.connection, select.POLLOUT)
        if not room.poll(1000 * min(max(self.left, 0), self.timeout, 10**6)):
            self.kill()  # what hangs in C code stops the thread that empties the pipe as well
        try:
            self.connection.send((i, method, args))
        except OSError:
            self.unsent.append(i)
            return
        if not self.asked:
            self.since = time.monotonic()
        self.asked.append(i)

    def receive(self):
        """The next answer, (i, answer). EOFError, OSError: it died."""
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
        """Seconds for the answer that it is at."""
        return max(self.timeout, START_SECONDS) if self.starting else self.timeout

    @property
    def left(self) -> float:
        """Seconds until it counts as hanging."""
        return self.since + self.limit - time.monotonic() if self.asked else math.inf

    def kill(self) -> None:
        """It hangs. What it said before is still in the pipe, and then the pipe's end."""
        self.late = True
        self.process.kill()

    def obituary(self) -> Fault:
        """Why it ended."""
        self.process.join(timeout=5)
        if self.late:
            return Fault(f"no answer within {self.limit:g} s, its worker was killed")
        return Fault(f"its worker died with exit code {self.process.exitcode}")

    def bury(self) -> None:
        """Let nothing be left of the process."""
        self.process.kill()
        self.process.join(timeout=5)
        self.connection.close()

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            self.connection.send(None)

    def await_end(self, deadline: float) -> None:
        """Let it close its environments until then, a time of time.monotonic; kill what is left."""
        with contextlib.suppress(EOFError, OSError):
            while self.connection.poll(max(0, deadline - time.monotonic())):
                self.connection.recv()  # a last answer may stand in its way
        if time.monotonic() < deadline:
            self.process.join(timeout=1)
        self.bury()


def _spawn(make: Callable, owned: list[int]):
    """Start a process; returns (connection, process).

    It makes its environments and says (START, None), or sends the exception and ends. Then it
    takes (i, method of Slot, arguments) and answers (i, result). None ends it.
    """
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
    there.close()  # now the death of the worker is the end of the pipe
    return here, process


def _work(connection: Connection, make: Callable, owned: list[int], parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _die_with(parent)
    inbox = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        slots = {i: Slot(make) for i in owned}
    except ValueError as error:  # a user's mistake, said in one line
        return connection.send((START, ValueError(str(error))))
    except Exception as error:
        message = f"{name_of(make)}: {error!r}\n{traceback.format_exc()}"
        return connection.send((START, EnvError(message)))
    connection.send((START, None))
    while (request := _next(inbox, slots)) is not None:
        i, method, args = request
        connection.send((i, slots[i].call(method, *args)))
    for slot in slots.values():
        slot.close()


def _next(inbox: queue.SimpleQueue, slots: dict[int, Slot]):
    """The next request; until it comes, environments prepare their next episodes."""
    for slot in slots.values():
        if not inbox.empty():
            break
        slot.prepare()
    return inbox.get()


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent is gone.

    The thread that reads the pipe notices it too, but not while an environment hangs in C code.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            os._exit(0)


def _read(connection: Connection, inbox: queue.SimpleQueue) -> None:
    """A thread that empties the pipe: a busy environment must not block the parent's send."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone; a hanging environment must not outlive it
        inbox.put(message)
        if message is None:
            return
