"""A pool of environments: send a response to one, poll for those that have answered.

With `workers=0` everything runs in this process. With K workers the environments are dealt round
robin to K processes, and a slow one delays only those in its own worker; the Steps are the same.
An episode that ended is followed at once by the next one (`Step.first`). An environment that
fails, hangs or takes its worker with it loses its episode (`Step.fault`); the others in that worker
are brought back. Only too many faults end the run, with one `EnvError`.
"""

import itertools
import multiprocessing.connection
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from envs.pool.seat import FaultLog, Lost, Seat
from envs.pool.slot import EnvError, Fault, Slot, name_of
from envs.pool.worker import START, Worker
from envs.text_env import Observation, Step


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
    """N environments from `make()`; environment i resets with its next seed of `seeds[i]`, which
    may be an iterator that several of them take turns from.

    workers: processes, for which `make` is pickled: functools.partial of an importable function
    timeout: seconds that an environment in a worker has for a reset or a turn
    max_faults: share of the episodes begun that may fail; fewer than 20 count as 20
    faults: what went wrong, one dict each; the caller may write it down and clear the list
    """

    def __init__(
        self,
        make: Callable,
        seeds: list[Iterable[int]],
        workers: int = 0,
        timeout: float = 300.0,
        max_faults: float = 0.1,
    ):
        self.n_env, self.seeds = len(seeds), seeds
        self.log = FaultLog(name_of(make), max_faults)
        self.faults = self.log.entries
        self.seats: list[Seat] = []
        self.asked: dict[int, Generator] = {}  # of a Seat: it waits for an answer of its i
        self.inbox: deque = deque()  # (i, answer) for them
        self.results: dict = {}  # what they returned, to be handed out
        self.slots = [Slot(make) for _ in range(self.n_env)] if workers == 0 else []
        self.workers = [
            Worker(make, list(range(k, self.n_env, workers)), timeout)
            for k in range(min(workers, self.n_env))
        ]

    def reset(self) -> list[Observation | None]:
        """Begin everywhere; None for an environment that has no episode to play."""
        return [first for first, _ in self.resume([{"episode": 0, "responses": []}] * self.n_env)]

    def resume(self, state: list[dict]) -> list[tuple[Observation | None, list[Step]]]:
        """In the place of `reset`: go where `state_dict()` was, by playing its responses again.

        Returns the first observation of each episode and the Steps since. An environment that
        cannot be brought back begins its next episode: without Steps, and with a fault.
        """
        assert len(state) == self.n_env, f"a state of {len(state)} for {self.n_env} environments"
        self.seats = [Seat(i, self.seeds[i], self.log, **was) for i, was in enumerate(state)]
        for seat in self.seats:
            self._start(seat.i, seat.rejoin())
        return [self._result(i) for i in range(self.n_env)]

    def state_dict(self) -> list[dict]:
        """Where every environment is, as JSON: the number of its episode, the responses in it."""
        assert not self.asked and not self.results, "an environment is still busy with a turn"
        return [{"episode": s.episode, "responses": list(s.responses)} for s in self.seats]

    def send(self, i: int, response: str) -> None:
        """Let environment i take a turn; `poll` has what came of it.

        After a Step with `done` and without `first` its seeds are used up: send nothing more.
        """
        assert self.seats[i].seed is not None, f"environment {i} has no episode to play"
        self._start(i, self.seats[i].turn(response))

    def poll(self, wait: bool = True) -> list[tuple[int, Step]]:
        """The completed turns in order of i; with `wait` at least one, if any was sent.

        EnvError: the environments fail too often.
        """
        while self._receive(wait=False):
            pass
        while wait and self.asked and not self.results:
            self._receive(wait=True)
        return [(i, self.results.pop(i)) for i in sorted(self.results)]

    def place(self, i: int) -> tuple[int, int]:
        """Where environment i is: the seed of its episode, the turns that it took in it."""
        return self.seats[i].seed, len(self.seats[i].responses)

    def render(self, i: int) -> np.ndarray:
        """A picture of environment i, which must not be busy with a turn. Fault: it has none."""
        self._start(i, self.seats[i].ask("render"))
        return self._result(i)

    def close(self) -> None:
        """End the environments and processes; safe to call twice and after an EnvError."""
        for slot in self.slots:
            slot.close()
        for worker in self.workers:
            worker.dismiss()
        deadline = time.monotonic() + 5
        for worker in self.workers:
            worker.await_end(deadline)
        self.slots, self.workers = [], []

    def _start(self, i: int, task: Generator) -> None:
        busy = i in self.asked or i in self.results
        assert not busy, f"environment {i} is still busy with a turn"
        self.asked[i] = task
        self._advance(i, None)

    def _result(self, i: int):
        while i not in self.results:
            self._receive(wait=True)
        return self.results.pop(i)

    def _advance(self, i: int, answer) -> None:
        """Hand an answer to the task that waits for it, and pass on what that asks next."""
        task = self.asked.pop(i)
        try:
            raised = isinstance(answer, (Fault, Lost))
            request = task.throw(answer) if raised else task.send(answer)
        except StopIteration as end:
            self.results[i] = end.value
            return
        self.asked[i] = task
        if self.slots:
            self.inbox.append((i, self.slots[i].call(*request)))
        else:
            self.workers[i % len(self.workers)].ask(i, *request)

    def _receive(self, wait: bool) -> bool:
        """Hand on the answers that are there; was there any?"""
        if not self.inbox:
            self._listen(wait)
        any_answer = bool(self.inbox)
        while self.inbox:
            self._advance(*self.inbox.popleft())
        return any_answer

    def _listen(self, wait: bool) -> None:
        """Take an answer from each worker that has one, kill those that hang."""
        seconds = min((worker.left for worker in self.workers), default=0) if wait else 0
        pipes = [worker.connection for worker in self.workers]
        ready = multiprocessing.connection.wait(pipes, min(max(seconds, 0), 60))
        for worker in self.workers:
            if worker.connection in ready:
                self._take(worker)
            elif worker.left < 0:
                worker.kill()

    def _take(self, worker: Worker) -> None:
        try:
            i, answer = worker.receive()
        except (EOFError, OSError):  # all that it said before has been handed on
            self._restart(worker)
            return
        if i != START:
            self.inbox.append((i, answer))
        elif answer is not None:
            raise answer

    def _restart(self, worker: Worker) -> None:
        """A worker died: the fault of the environment that it was at, and of no other."""
        fault, asked = worker.obituary(), list(worker.asked)
        if worker.starting:
            envs = f"environments {worker.owned} ({self.log.name})"
            raise EnvError(f"{envs} were not made: {fault.error}")
        guilty, innocent = asked[:1], asked[1:] + worker.unsent
        if not guilty:  # it died between two turns
            self.log.add(None, None, None, fault)
        for i in worker.owned:
            self.seats[i].live = False
        self.inbox += [(i, fault) for i in guilty]
        self.inbox += [(i, Lost()) for i in innocent]
        worker.bury()
        worker.start()
