"""The event loop of an agent, in which its async programs run one after the other.

It outlives the episodes, as that of a service outlives its requests: clients, locks and pools that
a program or its framework keeps from episode to episode belong to the loop that has used them.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor

from envs.agents.threads import GRACE_SECONDS, report


class EventLoop:
    """`run` plays a program in the thread of its episode, and cancels the tasks that it leaves."""

    def __init__(self):
        self.loop, self.free = None, threading.Lock()

    def run(self, awaitable: Awaitable):
        """Return what the awaitable returns."""
        if not self.free.acquire(timeout=GRACE_SECONDS):  # the program before does not end
            self.loop, self.free = None, threading.Lock()
            self.free.acquire()
        free, self.loop = self.free, self.loop or asyncio.new_event_loop()
        try:
            return _run(self.loop, awaitable)
        finally:
            free.release()

    def wake(self) -> None:
        """Let a program that waits run Python code, as what stops it needs."""
        if self.loop:
            self.loop.call_soon_threadsafe(int)

    def close(self) -> None:
        if self.loop and self.free.acquire(blocking=False):
            self.loop.close()


def _run(loop: asyncio.AbstractEventLoop, awaitable: Awaitable):
    loop.set_exception_handler(report)
    with ThreadPoolExecutor() as pool:  # of asyncio.to_thread; what hangs there stays there
        loop.set_default_executor(pool)
        task = loop.create_task(_awaited(awaitable), context=contextvars.copy_context())
        try:
            return loop.run_until_complete(task)
        finally:
            left = asyncio.all_tasks(loop)
            for each in left:
                each.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


async def _awaited(awaitable: Awaitable):
    return await awaitable
