"""Where environment i stands, and what it goes through: turns, faults, the next episode.

The environment itself lives elsewhere and may be lost. A `Seat` knows what brings it back: equal
seeds and equal responses lead to the same place. `rejoin`, `turn` and `ask` are generators: they
yield a request, (method of `slot.Slot`, *arguments), and go on with its answer; a Fault or Lost
is raised where they wait. `envs.pool.vec_env` carries the requests and the answers.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

from envs.actions import split
from envs.pool.slot import EnvError, Fault
from envs.text_env import Observation, Step

FALSE_STARTS = 3  # in a row are one too many
FEW = 20  # episodes: a share of fewer says little


class Lost(Exception):
    """A request went down with its worker, through no fault of this environment."""


@dataclass
class FaultLog:
    """What went wrong in all environments, and how much may.

    name: of the environments
    max_share: of the episodes begun, that may fail; fewer than 20 count as 20
    """

    name: str
    max_share: float
    begun: int = 0
    failed: int = 0
    entries: list[dict] = field(default_factory=list)

    def add(self, env: int | None, seed: int | None, step: int | None, fault: Fault) -> str:
        """Returns the fault in one line. `env` is None where a worker died between two turns."""
        entry = dict(env=env, name=self.name, seed=seed, step=step, error=fault.error)
        self.entries.append(entry | dict(traceback=fault.traceback))
        return f"environment {env} ({self.name}), seed {seed}, step {step}: {fault.error}"


class Seat:
    """Environment i, in the episode number `episode` of its `seeds`, after `responses`.

    seed: of that episode; None if no episode is left to play
    observation: the last one
    live: the environment itself is there and has seen these responses
    """

    def __init__(
        self,
        i: int,
        seeds: Iterable[int],
        log: FaultLog,
        episode: int = 0,
        responses: Iterable[str] = (),
    ):
        self.i, self.seeds, self.log = i, islice(seeds, episode, None), log
        shared = iter(seeds) is seeds  # who takes a seed off an iterator has to play it
        self.ahead = iter(()) if shared else islice(seeds, episode + 1, None)
        self.false_starts = 0  # episodes in a row that failed in the reset or in the first turn
        self._begin(episode, responses)

    def _begin(self, episode: int, responses: Iterable[str]) -> None:
        self.episode = episode
        self.seed = next(self.seeds, None)
        self.following = next(self.ahead, None)  # the seed of the next episode, where it is known
        self.responses, self.live = list(responses), False
        self.observation: Observation | None = None

    def rejoin(self) -> Generator:
        """Go where the seat stands: the episode's first observation and its Steps since.

        If that fails, the next episode begins, without Steps. (None, []) without an episode.
        """
        if self.seed is None:
            return None, []
        try:
            replayed = yield from self._replay()
        except Fault as fault:
            line = self._fail(fault, len(self.responses))
            first = yield from self._next_episode()
            if first is None:
                raise EnvError(f"{line}\n{fault.traceback}") from fault
            return first, []
        self.log.begun += 1
        return replayed

    def turn(self, response: str) -> Generator:
        """The Step of one turn; where the environment fails, one that cuts the episode."""
        try:
            step = yield from self.ask("step", response)
        except Fault as fault:
            line = self._fail(fault, len(self.responses) + 1)
            step = self._cut(response, line)
        else:
            self.responses.append(response)
            step = self._placed(step, len(self.responses))
            self.observation, self.false_starts = step.observation, 0
        if not step.done:
            return step
        return replace(step, first=(yield from self._next_episode()))

    def ask(self, *request) -> Generator:
        """The answer to a request; an environment that was lost is brought back for it."""
        while True:
            if not self.live:
                yield from self._replay()
            try:
                return (yield request)
            except Lost:
                pass

    def _next_episode(self) -> Generator:
        """The first observation of the next episode that can be begun, or None."""
        while True:
            self._begin(self.episode + 1, [])
            if self.seed is None:
                return None
            try:
                first, _ = yield from self._replay()
            except Fault as fault:
                self._fail(fault, step=0)
            else:
                self.log.begun += 1
                return first

    def _replay(self) -> Generator:
        """Reset the environment and let it take the turns so far: (first, Steps)."""
        while True:
            try:
                first, steps = (yield "reset", self.seed, self.following), []
                for number, response in enumerate(self.responses, start=1):
                    steps.append(self._placed((yield "step", response), number))
                break
            except Lost:
                pass
        now = steps[-1].observation if steps else first
        if any(step.done for step in steps) or self.observation not in (None, now):
            raise Fault("its responses, played again, led elsewhere: it is not deterministic")
        self.observation, self.live = now, True
        return first, steps

    def _placed(self, step: Step, number: int) -> Step:
        """The Step with what it takes to play it again: equal seeds and responses."""
        return replace(step, episode=self.episode, seed=self.seed, number=number)

    def _fail(self, fault: Fault, step: int) -> str:
        """Count and log a failed episode; returns it in one line. EnvError: one too many."""
        log = self.log
        line = log.add(self.i, self.seed, step, fault)
        log.failed += 1
        self.false_starts = self.false_starts + 1 if step <= 1 else 0
        detail = f"{line}\n{fault.traceback}".rstrip()
        if step == 0 and log.begun == 0:  # nothing has worked yet: most likely a user's mistake
            raise EnvError(detail)
        if self.false_starts == FALSE_STARTS:
            raise EnvError(f"{FALSE_STARTS} episodes in a row failed at their start: {detail}")
        if log.failed > log.max_share * max(log.begun, FEW):
            raise EnvError(f"{log.failed} of {log.begun} episodes failed: {detail}")
        return line

    def _cut(self, response: str, fault: str) -> Step:
        """The turn in which the environment failed: it did nothing, and the episode is over."""
        step = Step(
            response=response,
            said=response,
            action="",
            valid=True,
            action_at=split(response),
            reward=0.0,
            terminated=False,
            truncated=True,
            success=False,
            observation=self.observation,
            fault=fault,
        )
        return self._placed(step, len(self.responses) + 1)
