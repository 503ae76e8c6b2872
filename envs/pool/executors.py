"""Where the environments of a pool run: in this process, in threads of it, or in worker processes.

Each executor has `ask(i, method, *args)` for a method of environment i's EnvHost,
`receive(seconds)`, which waits that long for answers (i, answer), and `close()`. The answer
MUST_RESET means that environment i has lost its episode. The index None stands for a worker that
died while no environment was working.
"""

import multiprocessing.connection
import queue
import threading
import time
from collections.abc import Callable

from envs.pool.host import EnvHost
from envs.pool.worker import Worker
from envs.pool.worker_process import serve

MUST_RESET = object()
LIVENESS_SECONDS = 1.0  # between checks whether silent workers are still alive
CLOSE_SECONDS = 5  # that environments have to close


def make_executor(make: Callable, n_env: int, workers: int, threads: int, timeout: float):
    """Return the executor of `n_env` environments; see `ResilientPool`."""
    assert not (workers and threads), f"both {workers} workers and {threads} threads"
    K = min(workers or threads, n_env)
    dealt = [list(range(k, n_env, K)) for k in range(K)]
    if workers:
        return ProcessExecutor(make, dealt, timeout)
    return ThreadExecutor(make, dealt) if threads else SerialExecutor(make, n_env)


class SerialExecutor:
    """All environments take turns in this process."""

    def __init__(self, make: Callable, n_env: int):
        self.hosts, self.answers = [EnvHost(make) for _ in range(n_env)], []

    def ask(self, i: int, method: str, *args) -> None:
        self.answers.append((i, self.hosts[i].call(method, *args)))

    def receive(self, seconds: float) -> list[tuple]:
        if not self.answers:
            time.sleep(seconds)
        answers, self.answers = self.answers, []
        return answers

    def close(self) -> None:
        for host in self.hosts:
            host.close()


class ThreadExecutor:
    """Threads of this process share the environments, which should mostly wait for I/O. A thread
    cannot be killed, so a turn has no time limit. dealt: the environments of each thread"""

    def __init__(self, make: Callable, dealt: list[list[int]]):
        self.answers, self.inboxes, self.threads = queue.SimpleQueue(), [], []
        for owned in dealt:
            hosts, inbox = {i: EnvHost(make) for i in owned}, queue.SimpleQueue()
            args = (hosts, inbox, self.answers.put)
            self.inboxes.append(inbox)
            self.threads.append(threading.Thread(target=serve, args=args, daemon=True))
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
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))


class ProcessExecutor:
    """Worker processes share the environments. A worker that hangs or dies is replaced."""

    def __init__(self, make: Callable, dealt: list[list[int]], timeout: float):
        self.workers = [Worker(make, owned, timeout) for owned in dealt]

    def ask(self, i: int, method: str, *args) -> None:
        self.workers[i % len(self.workers)].ask(i, method, *args)

    def receive(self, seconds: float) -> list[tuple]:
        left = min((worker.left for worker in self.workers), default=0)
        ends = [worker.connection for worker in self.workers]
        ends += [worker.process.sentinel for worker in self.workers]
        multiprocessing.connection.wait(ends, max(0, min(seconds, left, LIVENESS_SECONDS)))
        return [answer for worker in self.workers for answer in self._answers(worker)]

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self.workers:
            worker.join(deadline)
        self.workers = []

    def _answers(self, worker: Worker) -> list[tuple]:
        """Return at most one answer of a worker or, if it has died, MUST_RESET for its environments
        and a Fault. A worker that hangs is killed here, and a later call finds it dead."""
        dead = worker.dead  # checked first: then all that it sent before its death is in the pipe
        try:
            if worker.connection.poll():
                return [worker.receive()]
        except (EOFError, OSError):  # all that it sent before its death was received
            dead = True
        if not dead:
            if worker.left < 0:
                worker.kill()
            return []
        fault, guilty = worker.fault(), worker.asked[0] if worker.asked else None
        worker.discard()
        worker.start()
        return [(i, MUST_RESET) for i in worker.owned if i != guilty] + [(guilty, fault)]
