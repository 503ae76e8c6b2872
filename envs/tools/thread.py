"""Runs an environment's tools in a thread, so that a tool that hangs can be abandoned.

Python cannot end a thread from outside. An abandoned thread gets SystemExit raised in it, which
ends Python loops at once and blocking calls when they return. Threads that ignore it count as hung,
and at most MAX_HUNG may hang at a time. They are daemons, so none keeps the process from ending.
"""

import asyncio
import ctypes
import inspect
import queue
import threading
import weakref
from collections.abc import Callable

from common.awake import get_awake

MAX_HUNG = 16  # threads of a process that hang at the same time
hung: list[threading.Thread] = []


class ToolTimeout(TimeoutError):
    """A call exceeded its time limit, or cannot begin. The model reads the text."""


class ToolThread:
    """Calls functions in one thread, which starts with the first call, and waits for them."""

    def __init__(self):
        self.thread, self.inbox = None, queue.SimpleQueue()

    def call(self, function: Callable, seconds: float | None):
        """Return function(), or raise its exception; a coroutine is run to its end.

        seconds: the time limit, in which this process is awake; None: no limit
        ToolTimeout: the call took longer, or too many threads hang to start another
        """
        if self.thread is None and not self._start():
            if seconds is None:
                return run_to_end(function)
            raise ToolTimeout("the tool cannot run, because too many calls hang")
        answer = queue.SimpleQueue()
        self.inbox.put((function, answer))
        try:
            result, error = answer.get() if seconds is None else get_awake(answer, seconds)
        except queue.Empty:
            self._abandon()
            raise ToolTimeout(f"the tool did not answer within {seconds:g} s") from None
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Let the thread end; a later call starts another one."""
        self.inbox.put(None)
        self.thread, self.inbox = None, queue.SimpleQueue()

    def _start(self) -> bool:
        hung[:] = [thread for thread in hung if thread.is_alive()]
        if len(hung) >= MAX_HUNG:
            return False
        self.thread = threading.Thread(target=_serve, args=(self.inbox,), daemon=True)
        self.thread.start()
        weakref.finalize(self, self.inbox.put, None)  # in case nobody closes the environment
        return True

    def _abandon(self) -> None:
        ident = ctypes.c_ulong(self.thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
        hung.append(self.thread)
        self.close()


def _serve(inbox: queue.SimpleQueue) -> None:
    while (request := inbox.get()) is not None:
        function, answer = request
        try:
            result, error = run_to_end(function), None
        except BaseException as raised:  # also SystemExit, and asyncio's CancelledError
            result, error = None, raised
        answer.put((result, error))
        # While this waits, its variables must not keep a deleted environment alive.
        del request, function, answer, result, error
    if hasattr(LOOPS, "loop"):
        LOOPS.loop.close()


LOOPS = threading.local()  # an event loop per thread, because connections belong to a loop


def run_to_end(function: Callable):
    """Return function(), or the result of the coroutine that it returns."""
    result = function()
    if not inspect.isawaitable(result):
        return result
    if not hasattr(LOOPS, "loop"):
        LOOPS.loop = asyncio.new_event_loop()
    return LOOPS.loop.run_until_complete(result)
