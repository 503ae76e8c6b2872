"""The position of an environment in its episodes, and the responses that a replay needs."""

import enum
import itertools
from collections.abc import Iterable, Sequence

from envs.actions import split
from envs.errors import EnvError
from envs.pool.groups import DrawnSeeds
from envs.pool.serial import digest, numbered
from envs.text_env import Observation, Step

ELSEWHERE = "its responses, played again, led elsewhere: it is not deterministic"
CHANGED = "the environment now shows something else than when it was saved"


class ResponseText(str):
    """The text of a response. truncated: whether the response limit cut it off"""

    truncated = False

    def __new__(cls, text: str, truncated: bool = False):
        response = super().__new__(cls, text)
        response.truncated = truncated
        return response


class State(enum.Enum):
    """What an environment has to do next."""

    RESET = "it has not begun the episode"
    REPLAY = "it repeats turns whose Steps are known"
    READY = "it waits for a response"
    TURN = "it takes a turn"


class EpisodeCursor:
    """The episode of one environment: its seed and the responses so far, which can be replayed.

    seed, next_seed: seeds of this episode and of the next one; None if there is none, or if the
        next seed is not known in advance
    responses: all responses of the episode, including the current turn's
    taken: number of responses whose Steps are known
    played: number of responses that the environment has answered since its reset; None before it
    first, observation: the first observation of the episode and the current one
    steps: the Steps of the last replay, or only the last turn's
    ended: the Step that ended the last episode. It waits until this episode has begun, because its
        `first` is this episode's first observation. Or the EnvError to raise if no other episode
        can begin
    failures, fault: number of faults in a row without a turn; the message about the last one
    """

    def __init__(
        self,
        seeds: Iterable[int],
        episode: int = 0,
        responses: Sequence[str] = (),
        shown: str = "",
        truncated: Sequence[bool] = (),
        substitutes: int = 0,
    ):
        # Looking ahead in a shared iterator would take a seed away from the other environments.
        self.shared = iter(seeds) is seeds
        self.upcoming = iter(()) if self.shared else itertools.islice(seeds, episode + 1, None)
        self.seeds = itertools.islice(seeds, episode, None)
        self.drawn = seeds if isinstance(seeds, DrawnSeeds) else None
        self.failures, self.fault = 0, ""
        truncated = truncated or [False] * len(responses)
        self._begin(episode, next(self.seeds, None), ended=None)
        for _ in range(substitutes):  # as many times as the saved episode was replaced
            self.seed = self.drawn.substitute()
        self.responses = list(map(ResponseText, responses, truncated))
        self.taken = len(self.responses)
        self.saved_digest = shown  # of the last observation in a saved state; "": unknown

    def leave(self, ended: Step | EnvError) -> None:
        """Go to the next episode. In a group, an episode that could not begin is replaced."""
        if self.drawn and not self.responses:
            self._begin(self.episode, self.drawn.substitute(), ended)
        elif self.drawn:
            self._begin(self.episode + 1, self.drawn.after(self.seed, ended), ended)
        else:
            self._begin(self.episode + 1, next(self.seeds, None), ended)

    def _begin(self, episode: int, seed: int | None, ended: Step | EnvError | None) -> None:
        self.episode, self.seed, self.next_seed = episode, seed, next(self.upcoming, None)
        self.responses, self.taken, self.played = [], 0, None
        self.first = self.observation = self.shown = None
        self.steps, self.ended, self.saved_digest = [], ended, ""

    @property
    def state(self) -> State:
        if self.played is None:
            return State.RESET
        if self.played < self.taken:
            return State.REPLAY
        return State.TURN if self.in_turn else State.READY

    @property
    def in_turn(self) -> bool:
        """Whether the Step of a response is missing. A reset and a replay may come before it."""
        return self.taken < len(self.responses)

    def state_dict(self) -> dict:
        """Return the arguments of a new cursor, as JSON. If the episode cannot be replayed, the new
        cursor begins the next one."""
        substituted = dict(substitutes=self.drawn.k) if self.drawn and self.drawn.k else {}
        if self.observation and not self.observation.replayable:
            if self.responses:
                return dict(episode=self.episode + 1, responses=[])
            return dict(episode=self.episode, responses=[], **substituted)
        return dict(
            episode=self.episode,
            **self.past(),
            shown=digest(self.observation.text) if self.observation else "",
            **substituted,
        )

    def past(self) -> dict:
        """Return the responses of the episode, as a new cursor replays them."""
        truncated = [response.truncated for response in self.responses]
        return dict(responses=[*map(str, self.responses)], truncated=truncated)

    def record(self, answer: Observation | Step) -> str:
        """Record the answer to a reset or a step; return what is wrong with it, or ""."""
        if isinstance(answer, Observation):
            self.played, self.first, self.steps, self.shown = 0, answer, [], answer
        else:
            self.played += 1
            self.steps.append(self.numbered(answer, self.played, previous=self.shown))
            self.shown = answer.observation
        if self.played > self.taken:  # a new turn
            self.taken, self.steps, self.observation = self.played, self.steps[-1:], self.shown
        elif self.played == self.taken:  # the episode has begun, or its replay is over
            if any(step.done for step in self.steps) or self.observation not in (None, self.shown):
                return ELSEWHERE
            if self.saved_digest and self.saved_digest != digest(self.shown.text):
                return CHANGED
            self.observation, self.saved_digest = self.shown, ""
        return ""

    def cut(self, fault: str) -> Step:
        """Return the Step of a turn in which the environment failed: it only ends the episode."""
        response = self.responses[-1]
        step = Step(
            response=response,
            kept_response=response,
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
        return self.numbered(step, len(self.responses), self.observation)

    def numbered(self, step: Step, number: int, previous: Observation) -> Step:
        return numbered(step, self.episode, self.seed, number, previous)
