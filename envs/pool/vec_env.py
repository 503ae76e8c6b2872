"""A pool of environments: send a response to one of them, poll for those that have answered.

With `workers=0` all environments run in this process. With K workers they are dealt round robin to
K processes. A slow environment delays only the others of its worker, and the Steps are the same.
After an episode the next one begins at once (`Step.first`). An environment that fails, hangs or
kills its worker loses its episode (`Step.fault`). The other environments of that worker replay
theirs before their next turn: equal seeds and equal responses lead to the same place.
"""

import itertools
import multiprocessing.connection
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from envs import make_env
from envs.actions import split
from envs.contract import EnvError, Fault, name_of
from envs.foreign import tell_time_limit
from envs.pool.seat import Seat
from envs.pool.worker import START, Worker
from envs.text_env import Observation, Step

MAX_FAULTS = 0.1  # share of the episodes begun that may fail
FEW = 20  # the share is taken of at least this many episodes: of fewer it says little
FALSE_STARTS = 3  # this many in a row end the run
BUSY = "an environment is still busy with a turn"


def make_envs(args, seeds: list[Iterable[int]]) -> "VecEnv":
    """The environments of the command line, one for each item of `seeds`."""
    options = dict(format_penalty=args.format_penalty, max_episode_steps=args.max_episode_steps)
    tell_time_limit(args.env_name, args.max_episode_steps)
    make = partial(make_env, args.env_name, **options)
    return VecEnv(make, seeds, args.env_workers, args.env_timeout)


class Place:
    """Where one environment is in its `seeds`, and what brings it back if it is lost.

    seed, following: seeds of this episode and the next; None if there is none or it is unknown
    responses: all of the episode, including the one of a turn under way
    taken: number of them whose Steps are known
    seen: number of them that the environment itself has seen; None if it must be reset first
    first, observation: the episode's first and last observation; steps: of the last replay or turn
    ended: Step that ended the last episode, held back until this one has begun; the error of an
        episode that `resume` could not bring back, raised if no other can be begun
    false_starts: number of episodes in a row that failed in the reset or the first turn
    """

    def __init__(self, seeds: Iterable[int], episode: int, responses: list[str]):
        shared = iter(seeds) is seeds  # looking ahead would take the seed from the others
        self.ahead = iter(()) if shared else itertools.islice(seeds, episode + 1, None)
        self.seeds = itertools.islice(seeds, episode, None)
        self.false_starts = 0
        self.begin(episode, responses, ended=None)

    def begin(self, episode: int, responses: list[str], ended: Step | EnvError | None) -> None:
        self.seed, self.following = next(self.seeds, None), next(self.ahead, None)
        self.episode, self.responses, self.taken = episode, list(responses), len(responses)
        self.seen, self.first, self.steps, self.observation = None, None, [], None
        self.ended = ended

    def record(self, answer: Observation | Step) -> bool:
        """Note what a reset or a step brought; False if a replay has led to another place."""
        if isinstance(answer, Observation):
            self.seen, self.first, self.steps, now = 0, answer, [], answer
        else:
            self.seen, now = self.seen + 1, answer.observation
            self.steps.append(self.numbered(answer, self.seen))
        if self.seen == self.taken:
            if any(step.done for step in self.steps) or self.observation not in (None, now):
                return False
            self.observation = now
        elif self.seen > self.taken:  # a new turn; before, while seen < taken, it is a replay
            self.taken, self.steps, self.observation = self.seen, self.steps[-1:], now
            self.false_starts = 0
        return True

    def cut(self, fault: str) -> Step:
        """The Step of a turn in which the environment failed: it does nothing but end."""
        response = self.responses[-1]
        said = dict(response=response, said=response, action="", action_at=split(response))
        ends = dict(valid=True, reward=0.0, terminated=False, truncated=True, success=False)
        step = Step(**said, **ends, observation=self.observation, fault=fault)
        return self.numbered(step, len(self.responses))

    def numbered(self, step: Step, number: int) -> Step:
        """Add what is needed to play the turn again."""
        return replace(step, episode=self.episode, seed=self.seed, number=number)


class VecEnv:
    """N environments from `make()`. Environment i resets with the next seed of `seeds[i]`.

    seeds: one iterable per environment; several may share an iterator and take turns from it
    workers: number of processes, for which `make` is pickled (a functools.partial, no lambda)
    timeout: seconds that an environment in a worker has for a reset or a turn
    max_faults: share of the episodes begun that may fail; fewer than 20 count as 20
    faults: one dict for each failure; the caller may write them down and clear the list
    """

    def __init__(
        self, make: Callable, seeds: list[Iterable[int]], workers: int = 0, timeout: float = 300.0,
        max_faults: float = MAX_FAULTS,
    ):  # fmt: skip
        self.n_env, self.seeds, self.name = len(seeds), seeds, name_of(make)
        self.max_faults, self.begun, self.failed = max_faults, 0, 0
        self.faults, self.places, self.played = [], [], False  # played: a turn has been completed
        self.asked: set[int] = set()  # environments that have not answered yet
        self.inbox, self.results = [], {}  # [(i, answer)]; i -> the Step for the next `poll`
        self.seats = [Seat(make) for _ in range(self.n_env)] if workers == 0 else []
        owned = [list(range(k, self.n_env, workers)) for k in range(min(workers, self.n_env))]
        self.workers = [Worker(make, some, timeout) for some in owned]

    def reset(self) -> list[Observation | None]:
        """Begin everywhere. An environment without an episode to play has None."""
        return [first for first, _ in self.resume(None)]

    def resume(self, state: list[dict] | None) -> list[tuple[Observation | None, list[Step]]]:
        """Go where `state_dict()` was by playing its responses again; None: begin everywhere.

        Returns the first observation of each episode and the Steps since. An environment that
        cannot be brought back begins its next episode: it has a fault and no Steps.
        """
        state = state or [{"episode": 0, "responses": []}] * self.n_env
        assert len(state) == self.n_env, f"a state of {len(state)} for {self.n_env} environments"
        assert not self.asked and not self.results, BUSY
        self.places = [Place(seeds, **was) for seeds, was in zip(self.seeds, state, strict=True)]
        for i, place in enumerate(self.places):
            if place.seed is not None:
                self._proceed(i)
        while self.asked:
            self._receive(wait=True)
        return [(place.first, list(place.steps)) for place in self.places]

    def state_dict(self) -> list[dict]:
        """Where every environment is, as JSON: its episode's number and the responses in it."""
        assert not self.asked and not self.results, BUSY
        return [{"episode": p.episode, "responses": list(p.responses)} for p in self.places]

    def send(self, i: int, response: str) -> None:
        """Let environment i take a turn; `poll` returns its Step.

        A Step with `done` and without `first` used up the seeds: nothing may be sent after it.
        """
        assert self.places[i].seed is not None, f"environment {i} has no episode to play"
        busy = f"environment {i} is still busy with a turn"
        assert i not in {*self.asked, *self.results}, busy
        self.places[i].responses.append(response)
        self._proceed(i)

    def poll(self, wait: bool = True) -> list[tuple[int, Step]]:
        """The completed turns in order of i. With `wait` at least one, if any was sent.

        Raises EnvError if the environments fail too often.
        """
        while self._receive(wait=False):
            pass
        while wait and self.asked and not self.results:
            self._receive(wait=True)
        return [(i, self.results.pop(i)) for i in sorted(self.results)]

    def place(self, i: int) -> tuple[int, int]:
        """Where environment i is: its episode's seed and the number of turns taken in it."""
        return self.places[i].seed, self.places[i].taken

    def close(self) -> None:
        """End the environments and processes; safe to call twice and after an EnvError."""
        for seat in self.seats:
            seat.close()
        for worker in self.workers:
            worker.stop()
        deadline = time.monotonic() + 5
        for worker in self.workers:
            worker.join(deadline)
        self.seats, self.workers = [], []

    def _proceed(self, i: int) -> None:
        place = self.places[i]
        if place.seen is None:
            self._ask(i, "reset", place.seed, place.following)
        else:
            self._ask(i, "step", place.responses[place.seen])

    def _answered(self, i: int, answer: Observation | Step | Fault) -> None:
        self.asked.remove(i)
        self.played |= isinstance(answer, Step)
        place = self.places[i]
        in_turn = place.taken < len(place.responses)
        if isinstance(answer, Fault):
            self._failed(i, answer)
        elif not place.record(answer):
            self._failed(
                i, Fault("its responses, played again, led elsewhere: it is not deterministic")
            )
        elif place.seen < len(place.responses):  # in a replay, or between it and a turn
            self._proceed(i)
        elif not in_turn:  # the episode has begun, or `resume` has come to its place
            self.begun += 1
            if isinstance(place.ended, Step):
                self.results[i] = replace(place.ended, first=place.first)
        elif place.steps[-1].done:
            self._next_episode(i, ended=place.steps[-1])
        else:
            self.results[i] = place.steps[-1]

    def _next_episode(self, i: int, ended: Step | EnvError) -> None:
        place = self.places[i]
        place.begin(place.episode + 1, [], ended)
        if place.seed is not None:
            self._proceed(i)
        elif isinstance(ended, EnvError):
            raise ended
        else:
            self.results[i] = ended

    def _failed(self, i: int, fault: Fault) -> None:
        """Count and log a lost episode and begin the next one; EnvError if it is one too many."""
        place = self.places[i]
        number, in_turn = len(place.responses), place.taken < len(place.responses)
        line = self._log(i, place.seed, number, fault)
        if fault.broken and not self.played:  # no turn can be completed as the code is
            raise EnvError(fault.error)
        self.failed += 1
        place.false_starts = place.false_starts + 1 if number <= 1 else 0
        if number == 0 and self.begun == 0:  # nothing has worked yet: probably a user's mistake
            raise EnvError(line)
        if place.false_starts == FALSE_STARTS:
            raise EnvError(f"{FALSE_STARTS} episodes in a row failed at their start: {line}")
        if self.failed > self.max_faults * max(self.begun, FEW):
            raise EnvError(f"{self.failed} of {self.begun} episodes failed: {line}")
        ended = place.cut(line) if in_turn else place.ended
        self._next_episode(i, ended or EnvError(line))

    def _log(self, i: int | None, seed: int | None, step: int | None, fault: Fault) -> str:
        entry = dict(env=i, name=self.name, seed=seed, step=step, error=fault.error)
        self.faults.append(entry | dict(traceback=fault.traceback))
        return f"environment {i} ({self.name}), seed {seed}, step {step}: {fault.error}"

    def _ask(self, i: int, method: str, *args) -> None:
        self.asked.add(i)
        if self.seats:
            self.inbox.append((i, self.seats[i].call(method, *args)))
        else:
            self.workers[i % len(self.workers)].ask(i, method, *args)

    def _receive(self, wait: bool) -> bool:
        """Process the answers that have come; returns whether there were any."""
        if not self.inbox:
            self._listen(wait)
        answers, self.inbox = self.inbox, []
        for i, answer in answers:
            self._answered(i, answer)
        return bool(answers)

    def _listen(self, wait: bool) -> None:
        """Take one answer from each worker that has one, and kill the workers that hang."""
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
        except (EOFError, OSError):  # it died, and everything that it said before was received
            return self._restart(worker)
        if i != START:
            self.inbox.append((i, answer))
        elif answer is not None:
            raise answer

    def _restart(self, worker: Worker) -> None:
        """Replace a dead worker: only the environment that it was busy with is at fault."""
        fault, asked = worker.fault(), list(worker.asked)
        if worker.starting:
            envs = f"environments {worker.owned} ({self.name})"
            raise EnvError(f"{envs} were not made: {fault.error}")
        guilty, innocent = asked[:1], asked[1:] + worker.unsent
        if not guilty:  # it died between two turns
            self._log(None, None, None, fault)
        worker.discard()
        worker.start()
        for i in worker.owned:
            self.places[i].seen = None
        for i in innocent:
            self._proceed(i)
        self.inbox += [(i, fault) for i in guilty]
