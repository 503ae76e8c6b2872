"""Where the environments of a pool live: in this process, in threads of it, or in workers.

Each class has `ask(i, method, *args)` for a method of environment i's Seat, `receive(seconds)`,
which waits that long for answers (i, answer), and `close()`. The answer LOST says that environment
i must begin again. The index None stands for a worker that died while no environment was at fault.
"""

import multiprocessing.connection
import queue
import threading
import time
from collections.abc import Callable

from envs.pool.seat import Seat
from envs.pool.worker import Worker, serve

LOST = object()
LOOK = 1.0  # seconds between two looks at whether a worker lives whose pipe says nothing
CLOSING = 5  # seconds that environments have to close


def make_home(make: Callable, n_env: int, workers: int, threads: int, timeout: float):
    """Return the home of `n_env` environments; see `VecEnv`."""
    assert not (workers and threads), f"{workers} workers and {threads} threads: choose"
    K = min(workers or threads, n_env)
    dealt = [list(range(k, n_env, K)) for k in range(K)]
    if workers:
        return Workers(make, dealt, timeout)
    return Threads(make, dealt) if threads else Here(make, n_env)


class Here:
    """All of them take turns in this process."""

    def __init__(self, make: Callable, n_env: int):
        self.seats, self.answers = [Seat(make) for _ in range(n_env)], []

    def ask(self, i: int, method: str, *args) -> None:
        self.answers.append((i, self.seats[i].call(method, *args)))

    def receive(self, seconds: float) -> list[tuple]:
        if not self.answers:
            time.sleep(seconds)
        answers, self.answers = self.answers, []
        return answers

    def close(self) -> None:
        for seat in self.seats:
            seat.close()


class Threads:
    """They are dealt to threads of this process, for environments that wait for something. A thread
    cannot be killed, so a turn has no time limit. dealt: the environments of each thread"""

    def __init__(self, make: Callable, dealt: list[list[int]]):
        self.answers, self.inboxes, self.threads = queue.SimpleQueue(), [], []
        for owned in dealt:
            seats, inbox = {i: Seat(make) for i in owned}, queue.SimpleQueue()
            job = dict(target=serve, args=(seats, inbox, self.answers.put), daemon=True)
            self.inboxes.append(inbox)
            self.threads.append(threading.Thread(**job))
            self.threads[-1].start()

    def ask(self, i: int, method: str, *args) -> None:
        self.inboxes[i % len(self.inboxes)].put((i, method, args))

    def receive(self, seconds: float) -> list[tuple]:
        try:
            return [self.answers.get(timeout=seconds)]
        except queue.Empty:
            return []

    def close(self) -> None:
        for inbox in self.inboxes:
            inbox.put(None)
        deadline = time.monotonic() + CLOSING
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))


class Workers:
    """They are dealt to processes. One that hangs or dies is replaced."""

    def __init__(self, make: Callable, dealt: list[list[int]], timeout: float):
        self.workers = [Worker(make, owned, timeout) for owned in dealt]

    def ask(self, i: int, method: str, *args) -> None:
        self.workers[i % len(self.workers)].ask(i, method, *args)

    def receive(self, seconds: float) -> list[tuple]:
        left = min((worker.left for worker in self.workers), default=0)
        ends = [worker.connection for worker in self.workers]
        ends += [worker.process.sentinel for worker in self.workers]
        multiprocessing.connection.wait(ends, max(0, min(seconds, left, LOOK)))
        return [answer for worker in self.workers for answer in self._answers(worker)]

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        deadline = time.monotonic() + CLOSING
        for worker in self.workers:
            worker.join(deadline)
        self.workers = []

    def _answers(self, worker: Worker) -> list[tuple]:
        """At most one answer of a worker, or what its death means. One that hangs is killed."""
        dead = worker.dead  # asked first: what it said before it died is in the pipe by now
        try:
            if worker.connection.poll():
                return [worker.receive()]
        except (EOFError, OSError):  # everything that it said before it died was received
            dead = True
        if not dead:
            if worker.left < 0:
                worker.kill()
            return []
        fault, guilty = worker.fault(), worker.asked[0] if worker.asked else None
        worker.discard()
        worker.start()
        return [(i, LOST) for i in worker.owned if i != guilty] + [(guilty, fault)]
