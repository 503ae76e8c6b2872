"""A thread in which an environment's tools run, so that one that hangs can be left behind.

Python cannot end a thread from outside. One that is left behind gets SystemExit raised in it, which
ends loops of Python code, and code that waits for something as soon as it has waited. Threads that
ignore it are counted, and no more are started than MAX_HUNG; none keeps the process from ending.
"""

import asyncio
import ctypes
import inspect
import queue
import threading
import weakref
from collections.abc import Callable

MAX_HUNG = 16  # threads of a process that hang at the same time
hung: list[threading.Thread] = []


class TooLate(TimeoutError):
    """A call took longer than it may, or cannot begin. The text says so, in words for the model."""


class ToolThread:
    """Calls functions, and waits for them, in one thread that begins with the first call."""

    def __init__(self):
        self.thread, self.inbox = None, queue.SimpleQueue()

    def call(self, function: Callable, seconds: float | None):
        """Return function(), or raise what it raises; a coroutine is run to its end.

        seconds: how long it may take; None: as long as it likes
        TooLate: it took longer, or too many threads hang to start another
        """
        if self.thread is None and not self._start():
            if seconds is None:
                return finished(function)
            raise TooLate("the tool cannot run, because too many calls hang")
        answer = queue.SimpleQueue()
        self.inbox.put((function, answer))
        try:
            result, error = answer.get(timeout=seconds)
        except queue.Empty:
            self._leave()
            raise TooLate(f"the tool did not answer within {seconds:g} s") from None
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Let the thread end; a later call begins another one."""
        self.inbox.put(None)
        self.thread, self.inbox = None, queue.SimpleQueue()

    def _start(self) -> bool:
        hung[:] = [thread for thread in hung if thread.is_alive()]
        if len(hung) >= MAX_HUNG:
            return False
        self.thread = threading.Thread(target=_serve, args=(self.inbox,), daemon=True)
        self.thread.start()
        weakref.finalize(self, self.inbox.put, None)  # of an environment that nobody closed
        return True

    def _leave(self) -> None:
        number = ctypes.c_ulong(self.thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(SystemExit))
        hung.append(self.thread)
        self.close()


def _serve(inbox: queue.SimpleQueue) -> None:
    while (request := inbox.get()) is not None:
        function, answer = request
        try:
            result, error = finished(function), None
        except BaseException as raised:  # also SystemExit, and asyncio's CancelledError
            result, error = None, raised
        answer.put((result, error))
        del request, function, answer, result, error  # the environment may go meanwhile
    if hasattr(LOOPS, "loop"):
        LOOPS.loop.close()


LOOPS = threading.local()  # an event loop for each thread: a connection belongs to its loop


def finished(function: Callable):
    result = function()
    if not inspect.isawaitable(result):
        return result
    if not hasattr(LOOPS, "loop"):
        LOOPS.loop = asyncio.new_event_loop()
    return LOOPS.loop.run_until_complete(result)
