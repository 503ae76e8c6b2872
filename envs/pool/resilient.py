"""A pool of environments that survives failures: workers, threads, faults, replay.

It has the interface of `envs.pool.serial.SerialPool` and returns the same Steps. All environments
run in this process, or K processes (`workers`) or K threads (`threads`) share them. A slow
environment delays only the others of its worker or thread. An environment that fails, hangs or
kills its worker loses its episode (`Step.fault`). If it keeps failing, it rests before the next
episode (`envs.pool.faults`). The other environments of that worker replay their episodes before
their next turn: equal seeds and equal responses lead to equal states. Resuming a stopped run works
in the same way.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from common.plugins import UserError
from envs.errors import EnvError, Fault, name_of
from envs.pool.cursor import CHANGED, EpisodeCursor, ResponseText, State
from envs.pool.executors import MUST_RESET, make_executor
from envs.pool.faults import MAX_FAULTS, RESET_TRIES, FaultRate, check_false_starts, pause
from envs.text_env import Observation, Step

POLL_SECONDS = 1.0  # after which `poll` returns without an answer
GATHER_SECONDS = 0.05  # that `poll` waits for more answers after the first one
PROGRESS_SECONDS = 5.0  # between two lines about the progress of a replay
BUSY = "an environment is still busy with a turn"


class ResilientPool:
    """N environments from `make()`. Environment i resets with the next seed of `seeds[i]`.

    seeds: one iterable per environment; several may share an iterator and take turns from it
    workers: number of processes, for which `make` is pickled (a functools.partial, no lambda)
    timeout: seconds that an environment in a worker has for a reset or a turn
    max_faults: share of the last 200 episodes begun that may fail; fewer than 20 count as 20
    threads: number of threads; at most one of `workers` and `threads` is not 0
    first: index of environment 0 over all ranks, used in faults and messages
    proven: whether such environments have worked in this run before. If so, a failing first reset
        is not taken for a user's mistake but tried again
    faults: one dict for each failure; the caller may log them and clear the list
    """

    def __init__(
        self,
        make: Callable,
        seeds: list[Iterable[int]],
        workers: int = 0,
        timeout: float = 300.0,
        max_faults: float = MAX_FAULTS,
        threads: int = 0,
        first: int = 0,
        proven: bool = False,
    ):
        self.n_env, self.seeds, self.threads = len(seeds), seeds, threads
        self.name = name_of(make)
        self.first, self.proven, self.rate = first, proven, FaultRate(max_faults)
        self.played = False  # whether a turn has been completed
        self.faults: list[dict] = []
        self.cursors: list[EpisodeCursor] = []
        self.asked: set[int] = set()  # environments that have not answered yet
        self.resting: dict[int, float] = {}  # environment -> time.monotonic() of its next reset
        self.results: dict[int, Step] = {}  # for the next `poll`
        self.executor = make_executor(make, self.n_env, workers, threads, timeout)

    def reset(self) -> list[Observation | None]:
        """Begin all episodes and return their first observations; None for environments without
        an episode to play."""
        return [first for first, _ in self.resume(None)]

    def resume(self, state: list[dict] | None) -> list[tuple[Observation | None, list[Step]]]:
        """Replay the responses of a `state_dict()`; None begins all episodes anew.

        Returns the first observation of each episode and the Steps since. An environment whose
        replay fails gets a fault and begins its next episode, without Steps. A line every few
        seconds shows the progress of a long replay.
        """
        state = state or [{}] * self.n_env
        assert len(state) == self.n_env, f"a state of {len(state)} for {self.n_env} environments"
        assert not self.busy and not self.results, BUSY
        self.cursors = [
            EpisodeCursor(seeds, **saved) for seeds, saved in zip(self.seeds, state, strict=True)
        ]
        for i, cursor in enumerate(self.cursors):
            if cursor.seed is not None:
                self._proceed(i)
        replays = any(cursor.responses for cursor in self.cursors)
        printed = time.monotonic()
        while self.busy:
            self._receive(PROGRESS_SECONDS)
            if replays and self.busy and time.monotonic() - printed >= PROGRESS_SECONDS:
                printed, back = time.monotonic(), self.n_env - len(self.busy)
                print(f"replaying: {back} of {self.n_env} environments are back", flush=True)
        return [(cursor.first, list(cursor.steps)) for cursor in self.cursors]

    def go_to(self, places: list[tuple]) -> list[tuple[Observation | None, list[Step]]]:
        """Leave all episodes, and resume others: a pair (seeds, state) for each environment."""
        self.seeds = [seeds for seeds, _ in places]
        return self.resume([state for _, state in places])

    def state_dict(self) -> list[dict]:
        """Return each environment's episode, its responses and a digest of the current
        observation, as JSON."""
        assert not self.busy and not self.results, BUSY
        return [cursor.state_dict() for cursor in self.cursors]

    def send(self, i: int, response: str, truncated: bool = False) -> None:
        """Let environment i take a turn; `poll` returns its Step.

        truncated: whether the response limit cut the response off; agents get this information
        After a Step with `done` and without `first` there are no seeds left, and nothing may be
        sent.
        """
        assert self.cursors[i].seed is not None, f"environment {i} has no episode to play"
        busy = i in self.asked or i in self.resting or i in self.results
        assert not busy, f"environment {i} is still busy with a turn"
        self.cursors[i].responses.append(ResponseText(response, truncated))
        self._proceed(i)

    def poll(self, wait: bool = True) -> list[tuple[int, Step]]:
        """Return the complete turns as (i, Step) in the order of i. EnvError: too many faults

        With `wait` it waits for the first answer, but at most a second: signals must be handled
        even while environments hang or rest. After the first answer it waits a moment for more,
        because an engine that works in lock-step should get large batches.
        """
        while self._receive(0):
            pass
        deadline = time.monotonic() + POLL_SECONDS
        while wait and not self.results and self.busy and time.monotonic() < deadline:
            self._receive(POLL_SECONDS)
        end = time.monotonic() + GATHER_SECONDS
        while wait and self.results and self.asked and (left := end - time.monotonic()) > 0:
            self._receive(left)
        return [(i, self.results.pop(i)) for i in sorted(self.results)]

    def position(self, i: int) -> tuple[int | None, int]:
        """Return the seed of environment i's episode and the number of turns taken in it."""
        return self.cursors[i].seed, self.cursors[i].taken

    def observation(self, i: int) -> Observation | None:
        """Return what environment i shows now; None: it has no episode to play."""
        return self.cursors[i].observation

    def past(self, i: int) -> dict:
        """Return the responses of environment i in its episode, as `resume` replays them."""
        return self.cursors[i].past()

    def close(self) -> None:
        """End the environments, processes and threads; safe to call twice and after an EnvError."""
        self.executor.close()

    @property
    def busy(self) -> set[int]:
        """Environments that will answer: they are working, or rest before their next reset."""
        return self.asked | self.resting.keys()

    def _proceed(self, i: int) -> None:
        """Ask environment i for what its cursor needs next."""
        cursor = self.cursors[i]
        self.asked.add(i)
        if cursor.state is State.RESET:
            self.executor.ask(i, "reset", cursor.seed, cursor.next_seed)
        else:
            self.executor.ask(i, "step", cursor.responses[cursor.played])

    def _receive(self, seconds: float) -> bool:
        """Process the answers that come within `seconds`; return whether there were any."""
        now = time.monotonic()
        for i in [i for i, end in self.resting.items() if end <= now]:
            del self.resting[i]
            self._proceed(i)
        rest = min(self.resting.values(), default=math.inf) - now
        answers = self.executor.receive(min(seconds, rest))
        for i, answer in answers:
            if answer is MUST_RESET:
                self.cursors[i].played = None
                if i in self.asked:
                    self._proceed(i)
            elif i is None:
                self.log_fault(None, None, None, answer)
            else:
                self._answered(i, answer)
        return bool(answers)

    def _answered(self, i: int, answer: Observation | Step | Fault) -> None:
        self.asked.remove(i)
        cursor, in_turn = self.cursors[i], self.cursors[i].in_turn
        if not isinstance(answer, Fault) and (error := cursor.record(answer)):
            answer = Fault(error)
        self.played |= bool(cursor.steps)
        if isinstance(answer, Fault):
            self._failed(i, answer)
        elif cursor.state is not State.READY:  # it replays, or the turn follows the replay
            self._proceed(i)
        elif in_turn:
            self._took_a_turn(i, cursor.steps[-1])
        else:  # the episode has begun, or the replay of `resume` is complete
            self.rate.begun += 1
            if isinstance(cursor.ended, Step):
                self.results[i] = replace(cursor.ended, first=cursor.first)

    def _took_a_turn(self, i: int, step: Step) -> None:
        cursor = self.cursors[i]
        if cursor.failures == 1:  # several in a row were an outage, which is over
            self.rate.count(cursor.fault)
        cursor.failures = 0
        if step.done:
            self._next_episode(i, ended=step)
        else:
            self.results[i] = step

    def _next_episode(self, i: int, ended: Step | EnvError, rests: bool = True) -> None:
        cursor = self.cursors[i]
        cursor.leave(ended)
        if cursor.seed is not None:
            self._begin(i, rests)
        elif isinstance(ended, EnvError):
            raise ended
        else:
            self.results[i] = ended

    def _begin(self, i: int, rests: bool) -> None:
        """Begin the episode of environment i. rests: after a rest if it failed more than once"""
        if rests and (seconds := pause(self.cursors[i].failures)):
            self.resting[i] = time.monotonic() + seconds
        else:
            self._proceed(i)

    def _failed(self, i: int, fault: Fault) -> None:
        """Log a fault and begin another episode. ValueError or EnvError: the run cannot go on"""
        cursor, number = self.cursors[i], len(self.cursors[i].responses)
        line = self.log_fault(i, cursor.seed, number, fault)
        untried = number == 0 and not (self.rate.begun or self.proven)
        if (fault.breaks_contract and not self.played) or (fault.not_made and untried):
            raise UserError(fault.error)  # the user's code can never work
        if not cursor.in_turn and (number or fault.error == CHANGED):  # a replay of `resume` failed
            return self._next_episode(i, EnvError(line))
        if untried:  # nothing has worked yet: probably a user's mistake
            raise EnvError(line)
        cursor.failures, cursor.fault = cursor.failures + 1, line
        check_false_starts(cursor.failures, self.played or self.proven, line)
        rests = not fault.breaks_contract  # an outage passes, a mistake in the code does not
        if number == 0 and cursor.next_seed is None and cursor.failures % RESET_TRIES:
            cursor.played = None  # retry: an outage should not cost an evaluation episode
            return self._begin(i, rests)
        ended = cursor.cut(line) if cursor.in_turn else cursor.ended
        self._next_episode(i, ended or EnvError(line), rests)

    def log_fault(self, i: int | None, seed: int | None, step: int | None, fault: Fault) -> str:
        """Add a failure to `faults` and return a message about it."""
        number = None if i is None else self.first + i
        entry = dict(env=number, name=self.name, seed=seed, step=step, error=fault.error)
        self.faults.append(entry | dict(traceback=fault.traceback))
        return f"environment {number} ({self.name}), seed {seed}, step {step}: {fault.error}"
