"""The parent's end of a process in which several environments live.

`envs.pool.worker_process` is what runs in the process. `envs.pool.executors` replaces a process
that dies early.
"""

import atexit
import contextlib
import math
import select
import time
from collections import deque
from collections.abc import Callable

from common.awake import TICK_SECONDS, awake_seconds
from envs.errors import Fault
from envs.pool.worker_process import spawn

START_SECONDS = 300  # minimum time for an environment's first answer, because imports may be slow


class Worker:
    """A process with the environments `owned`. Answers come in order.

    timeout: seconds for one answer in which this process was awake
    asked: environments whose answers are still to come, in order
    made: environments that have answered
    """

    def __init__(self, make: Callable, owned: list[int], timeout: float):
        self.make, self.owned, self.timeout = make, owned, timeout
        self.start()

    def start(self) -> None:
        self.asked, self.made, self.hung = deque(), set(), False
        self.connection, self.process = spawn(self.make, self.owned)
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
