"""A pool of environments: send a response to one of them, poll for those that have answered.

All environments run in this process, or they are dealt round robin to K processes (`workers`) or to
K threads (`threads`). A slow environment delays only the others of its worker or thread, and the
Steps are the same. After an episode the next one begins at once (`Step.first`). An environment that
fails, hangs or kills its worker loses its episode (`Step.fault`), and rests before the next one
while it keeps failing (`envs.pool.faults`). The other environments of that worker replay theirs
before their next turn: equal seeds and equal responses lead to the same place.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from common.plugins import UserError
from envs import AGENT, make_env
from envs.contract import EnvError, Fault, name_of
from envs.foreign import tell_time_limit
from envs.pool.faults import FALSE_STARTS, FIRST_STARTS, MAX_FAULTS, TRIES, FaultRate, pause
from envs.pool.homes import LOST, make_home
from envs.pool.place import CHANGED, NoTurn, Place
from envs.text_env import Aside, Observation, Said, Step

GATHER = 0.05  # seconds after an answer for which `poll` waits for more
TELL = 5.0  # seconds between two lines about the progress of a replay
GLANCE = 1.0  # seconds after which `poll` returns without an answer
LATER = 5.0  # seconds after an agent's own limit in which its worker counts as hanging
BUSY = "an environment is still busy with a turn"


def make_envs(args, seeds: list[Iterable[int]], first: int = 0, proven: bool = False) -> "VecEnv":
    """The environments of the command line, one for each item of `seeds`; see `VecEnv`."""
    options = dict(format_penalty=args.format_penalty, data=args.data, prompts=args.prompts)
    options |= dict(max_episode_steps=args.max_episode_steps, on_invalid=args.on_invalid)
    if args.env_name.startswith(AGENT):
        options |= agent_options(args)
    else:
        tell_time_limit(args.env_name, args.max_episode_steps)
        if args.env_threads and ":" in args.env_name:
            options |= dict(own_random=False)
    make = partial(make_env, args.env_name, **options)
    # An agent watches its own limit: it knows the line in which its program hangs.
    timeout = args.env_timeout + LATER * args.env_name.startswith(AGENT)
    home = dict(workers=args.env_workers, timeout=timeout, threads=args.env_threads)
    return VecEnv(make, seeds, **home, first=first, proven=proven)


def agent_options(args) -> dict:
    """What the endpoint of `envs.agents.agent` must know of the run."""
    options = dict(timeout=args.env_timeout, tokenizer=args.model, prompt_limit=args.prompt_limit)
    options |= dict(template=args.template_kwargs, sampling=args.endpoint_sampling)
    return options | dict(upstream=args.upstream)


class VecEnv:
    """N environments from `make()`. Environment i resets with the next seed of `seeds[i]`.

    seeds: one iterable per environment; several may share an iterator and take turns from it
    workers: number of processes, for which `make` is pickled (a functools.partial, no lambda)
    timeout: seconds that an environment in a worker has for a reset or a turn
    max_faults: share of the last 200 episodes begun that may fail; fewer than 20 count as 20
    threads: number of threads; at most one of `workers` and `threads` is not 0
    first: number of environment 0 over all ranks, from which faults and messages count
    proven: whether such environments have worked in this run: if so, one that fails from the first
        reset on is no mistake of the user's, and is tried again
    faults: one dict for each failure; the caller may write them down and clear the list
    """

    def __init__(
        self, make: Callable, seeds: list[Iterable[int]], workers: int = 0, timeout: float = 300.0,
        max_faults: float = MAX_FAULTS, threads: int = 0, first: int = 0, proven: bool = False,
    ):  # fmt: skip
        self.n_env, self.seeds, self.name = len(seeds), seeds, name_of(make)
        self.first, self.proven, self.rate = first, proven, FaultRate(max_faults)
        self.played = False  # whether a turn has been completed
        self.faults: list[dict] = []
        self.places: list[Place] = []
        self.asked: set[int] = set()  # environments that have not answered yet
        self.resting: dict[int, float] = {}  # environment -> time.monotonic() of its next reset
        self.results: dict[int, Step | Aside] = {}  # for the next `poll`
        self.home = make_home(make, self.n_env, workers, threads, timeout)

    def reset(self) -> list[Observation | None]:
        """Begin everywhere. An environment without an episode to play has None."""
        return [first for first, _ in self.resume(None)]

    def resume(self, state: list[dict] | None) -> list[tuple[Observation | None, list[Step]]]:
        """Go where `state_dict()` was by playing its responses again; None: begin everywhere.

        Returns the first observation of each episode and the Steps since. An environment that
        cannot be brought back begins its next episode: it has a fault and no Steps. A line every
        few seconds tells how far a long replay is.
        """
        state = state or [{"episode": 0, "responses": []}] * self.n_env
        assert len(state) == self.n_env, f"a state of {len(state)} for {self.n_env} environments"
        assert not self.busy and not self.results, BUSY
        self.places = [Place(seeds, **was) for seeds, was in zip(self.seeds, state, strict=True)]
        replays, told = any(place.responses for place in self.places), time.monotonic()
        for i, place in enumerate(self.places):
            if place.seed is not None:
                self._proceed(i)
        while self.busy:
            self._receive(TELL)
            if replays and self.busy and time.monotonic() - told >= TELL:
                told, back = time.monotonic(), self.n_env - len(self.busy)
                print(f"replaying: {back} of {self.n_env} environments are back", flush=True)
        return [(place.first, list(place.steps)) for place in self.places]

    def state_dict(self) -> list[dict]:
        """Where every environment is, as JSON: its episode's number, the responses in it, and a
        digest of what it shows."""
        assert not self.busy and not self.results, BUSY
        return [place.state() for place in self.places]

    def send(self, i: int, response: str, truncated: bool = False) -> None:
        """Let environment i take a turn; `poll` returns its Step. truncated: see `Said`

        A Step with `done` and without `first` used up the seeds: nothing may be sent after it.
        """
        assert self.places[i].seed is not None, f"environment {i} has no episode to play"
        busy = i in self.asked or i in self.resting or i in self.results
        assert not busy, f"environment {i} is still busy with a turn"
        self.places[i].responses.append(Said(response, truncated))
        self._proceed(i)

    def poll(self, wait: bool = True) -> list[tuple[int, Step | Aside]]:
        """The completed turns in order of i, or what must be answered before them (Aside). With
        `wait` at least one, if any was sent and one comes within a second; else there is none, so
        that a signal is noticed while environments hang or rest. An answer waits a moment for
        others, so that an engine in lock-step gets large batches. EnvError: they fail too often
        """
        while self._receive(0):
            pass
        glance = time.monotonic() + GLANCE
        while wait and not self.results and self.busy and time.monotonic() < glance:
            self._receive(GLANCE)
        end = time.monotonic() + GATHER
        while wait and self.results and self.asked and (left := end - time.monotonic()) > 0:
            self._receive(left)
        return [(i, self.results.pop(i)) for i in sorted(self.results)]

    def place(self, i: int) -> tuple[int, int]:
        """Where environment i is: its episode's seed and the number of turns taken in it."""
        return self.places[i].seed, self.places[i].taken

    def close(self) -> None:
        """End the environments, processes and threads; safe to call twice and after an EnvError."""
        self.home.close()

    @property
    def busy(self) -> set[int]:
        """Environments that will answer: they were asked, or rest before their next reset."""
        return self.asked | self.resting.keys()

    def _proceed(self, i: int) -> None:
        place = self.places[i]
        self.asked.add(i)
        if place.seen is None:
            self.home.ask(i, "reset", place.seed, place.following)
        else:
            self.home.ask(i, "step", place.responses[place.seen])

    def _receive(self, seconds: float) -> bool:
        """Process what comes within `seconds`; returns whether there was anything."""
        now = time.monotonic()
        for i in [i for i, end in self.resting.items() if end <= now]:
            del self.resting[i]
            self._proceed(i)
        rest = min(self.resting.values(), default=math.inf) - now
        answers = self.home.receive(min(seconds, rest))
        for i, answer in answers:
            if answer is LOST:
                self.places[i].seen = None
                if i in self.asked:
                    self._proceed(i)
            elif i is None:
                self._log(None, None, None, answer)
            else:
                self._answered(i, answer)
        return bool(answers)

    def _answered(self, i: int, answer: Observation | Step | Fault) -> None:
        self.asked.remove(i)
        place, in_turn = self.places[i], self.places[i].in_turn
        if not isinstance(answer, Fault) and (error := place.record(answer)):
            answer = Fault(error)
        self.played |= bool(place.steps)
        if isinstance(answer, Fault):
            self._failed(i, answer)
        elif place.seen < len(place.responses):  # in a replay, or between it and a turn
            self._proceed(i)
        elif not in_turn:  # the episode has begun, or `resume` has come to its place
            self.rate.begun += 1
            if isinstance(place.ended, Step):
                self.results[i] = replace(place.ended, first=place.first)
            elif isinstance(place.ended, NoTurn):
                self.results[i] = Aside(place.first)
        elif not (place.steps and place.steps[-1].complete):
            self.results[i] = Aside(place.now)
        else:
            self._took_a_turn(i, place.steps[-1])

    def _took_a_turn(self, i: int, step: Step) -> None:
        place = self.places[i]
        if place.failures == 1:  # more of them were an outage that is over
            self.rate.count(place.fault)
        place.failures = 0
        if step.done:
            self._next_episode(i, ended=step)
        else:
            self.results[i] = step

    def _next_episode(self, i: int, ended: Step | EnvError) -> None:
        place = self.places[i]
        place.leave(ended)
        if place.seed is not None:
            self._begin(i)
        elif isinstance(ended, EnvError):
            raise ended
        else:
            self.results[i] = ended

    def _begin(self, i: int) -> None:
        """Begin the episode of environment i, after a rest if it failed more than once."""
        if seconds := pause(self.places[i].failures):
            self.resting[i] = time.monotonic() + seconds
        else:
            self._proceed(i)

    def _failed(self, i: int, fault: Fault) -> None:
        """Log a fault and begin an episode. ValueError or EnvError: the run cannot go on"""
        place, number = self.places[i], len(self.places[i].responses)
        line = self._log(i, place.seed, number, fault)
        untried = number == 0 and not (self.rate.begun or self.proven)
        if (fault.broken and not self.played) or (fault.unmade and untried):
            raise UserError(fault.error)  # nothing can work as the user's code is
        if not place.in_turn and (number or fault.error == CHANGED):  # `resume` replayed in vain
            return self._next_episode(i, EnvError(line))
        if untried:  # nothing has worked yet: probably a user's mistake
            raise EnvError(line)
        place.failures, place.fault = place.failures + 1, line
        if place.failures == (FALSE_STARTS if self.played or self.proven else FIRST_STARTS):
            raise EnvError(f"{place.failures} faults in a row, without a turn among them: {line}")
        if number == 0 and place.following is None and place.failures % TRIES:
            place.seen = None  # the same episode again: a panel loses none in an outage
            return self._begin(i)
        cut = (place.cut(line) or NoTurn(line)) if place.in_turn else place.ended
        self._next_episode(i, cut or EnvError(line))

    def _log(self, i: int | None, seed: int | None, step: int | None, fault: Fault) -> str:
        number = None if i is None else self.first + i
        entry = dict(env=number, name=self.name, seed=seed, step=step, error=fault.error)
        self.faults.append(entry | dict(traceback=fault.traceback))
        return f"environment {number} ({self.name}), seed {seed}, step {step}: {fault.error}"
