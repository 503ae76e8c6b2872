"""A pool of environments: send a response to one, poll for those that have answered.

With `workers=0` everything runs in this process. With K workers the environments are dealt round
robin to K processes, and a slow one delays only those in its own worker; the Steps are the same.
An episode that ended is followed at once by the next one (`Step.first`). What goes wrong in an
environment reaches the caller as one `EnvError` that says where, and carries the traceback.
"""

import itertools
import multiprocessing.connection
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from envs.text_env import Observation, Step
from envs.worker import EnvError, Slot, name_of, start_worker


@dataclass(frozen=True)
class EpisodeSeeds:
    """Training: endless even seeds of environment `i` on rank `rank`."""

    seed: int
    rank: int
    i: int

    def __iter__(self) -> Iterator[int]:
        for j in itertools.count():
            draw = np.random.SeedSequence([self.seed, self.rank, self.i, j]).generate_state(1)[0]
            yield int(draw) >> 2 << 1  # even and < 2**31


@dataclass(frozen=True)
class PanelSeeds:
    """Evaluation: episode k of the panel has the odd seed 2 k + 1, whoever plays it.

    Environment `i` of `n_env` plays the episodes i, i + n_env, ... below `episodes`.
    """

    i: int
    n_env: int
    episodes: int

    def __iter__(self) -> Iterator[int]:
        return (2 * k + 1 for k in range(self.i, self.episodes, self.n_env))


class VecEnv:
    """N environments from `make()`; environment i resets with its next seed of `seeds[i]`.

    For workers `make` and `seeds` are pickled: functools.partial of an importable function.
    """

    def __init__(self, make: Callable, seeds: list[Iterable[int]], workers: int = 0):
        self.n_env, self.seeds = len(seeds), seeds
        self.name = name_of(make)
        self.asked: set[int] = set()  # environments whose answer was not handed out yet
        self.answers: dict = {}
        self.slots, self.connections, self.processes = [], [], []
        if workers == 0:
            self.slots = [Slot(i, make, seeds[i]) for i in range(self.n_env)]
        for worker in range(min(workers, self.n_env)):
            owned = {i: seeds[i] for i in range(worker, self.n_env, workers)}
            connection, process = start_worker(make, owned)
            self.connections.append(connection)
            self.processes.append(process)

    def reset(self) -> list[Observation | None]:
        """Begin everywhere; None for an environment that has no episode to play."""
        for i in range(self.n_env):
            self._ask(i, "reset")
        return [self._answer(i) for i in range(self.n_env)]

    def send(self, i: int, text: str) -> None:
        """Let environment i take a turn with the response `text`; `poll` has what came of it.

        After a Step with `done` and without `first` its seeds are used up: send nothing more.
        """
        self._ask(i, "step", text)

    def poll(self, wait: bool = True) -> list[tuple[int, Step]]:
        """The completed turns in order of i; with `wait` at least one, if any was sent."""
        while self._receive(timeout=0):
            pass
        while wait and self.asked and not self.answers:
            self._receive(timeout=None)
        return [(i, self._answer(i)) for i in sorted(self.answers)]

    def render(self, i: int) -> np.ndarray:
        """A picture of environment i, which must not be busy with a turn."""
        self._ask(i, "render")
        return self._answer(i)

    def close(self) -> None:
        """End the environments and processes; safe to call twice and after an EnvError."""
        for slot in self.slots:
            slot.close()
        for connection in self.connections:
            try:
                connection.send(None)
            except OSError:  # the worker has ended already
                pass
        for connection, process in zip(self.connections, self.processes, strict=True):
            _stop(connection, process)
        self.slots, self.connections, self.processes = [], [], []

    def _ask(self, i: int, method: str, *args) -> None:
        assert i not in self.asked, f"environment {i} is still busy with a turn"
        self.asked.add(i)
        if self.slots:
            self.answers[i] = self.slots[i].call(method, *args)
            return
        worker = i % len(self.connections)
        try:
            self.connections[worker].send((i, method, args))
        except OSError:
            self._receive(timeout=0)  # raises what the worker said before it ended
            raise self._death(worker) from None

    def _answer(self, i: int):
        while i not in self.answers:
            self._receive(timeout=None)
        self.asked.remove(i)
        return self.answers.pop(i)

    def _receive(self, timeout: float | None) -> bool:
        """Take an answer from each worker that has one; was there any?"""
        ready = multiprocessing.connection.wait(self.connections, timeout)
        for connection in ready:
            try:
                answer = connection.recv()
            except (EOFError, OSError):
                raise self._death(self.connections.index(connection)) from None
            if isinstance(answer, Exception):
                raise answer
            i, result = answer
            self.answers[i] = result
        return bool(ready)

    def _death(self, worker: int) -> EnvError:
        process = self.processes[worker]
        process.join(timeout=1)
        owned = ", ".join(str(i) for i in range(worker, self.n_env, len(self.processes)))
        return EnvError(
            f"worker {worker} (environments {owned} of {self.name}) died "
            f"with exit code {process.exitcode}"
        )


def _stop(connection, process) -> None:
    try:
        while connection.poll(timeout=5):  # a last answer may stand in its way
            connection.recv()
    except (EOFError, OSError):
        pass
    process.join(timeout=1)
    process.kill()
    process.join()
    connection.close()
