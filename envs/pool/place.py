"""Where one environment is in its episodes, and what brings it back there if it is lost."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from envs.actions import split
from envs.contract import EnvError
from envs.pool.seeds import GroupSeeds
from envs.text_env import Observation, Said, Step

ELSEWHERE = "its responses, played again, led elsewhere: it is not deterministic"
UNTRAINED = "the program ended without a turn that is trained: each call asked for no sample"
# What a Step says about the response, not about what came of it.
OF_THE_TURN = "response said action valid action_at episode seed number saw reply".split()
CHANGED = "the environment now shows something else than when it was saved"


class NoTurn(EnvError):
    """An episode ended before a turn that is trained; the next one takes its place."""


class Place:
    """Where one environment is in its `seeds`, and what brings it back if it is lost.

    seed, following: seeds of this episode and the next; None if there is none or it is unknown
    responses: all of the episode, including the one of a turn under way
    shown: digest of the observation that a saved state ends with; empty if it says nothing
    taken: number of responses whose Steps are known
    seen: number of them that the environment itself has seen; None if it must be reset first
    first, observation: the episode's first and last observation; steps: of the last replay or turn,
        whose last one is not complete while the program asks for what is no sample
    latest: the last of them, which no replay that fails halfway takes away
    now: the last observation of this game or replay; owed: reward paid before the first turn
    ended: Step that ended the last episode, held back until this one has begun; the error of an
        episode without a turn, or that `resume` could not bring back, raised if no other can begin
    failures, fault: number of faults in a row, without a turn among them; the line of the last one
    """

    def __init__(self, seeds: Iterable[int], episode: int, responses: list[str], shown: str = "",
                 truncated: Sequence[bool] = ()):  # fmt: skip
        self.shared = iter(seeds) is seeds  # looking ahead would take the seed from the others
        self.ahead = iter(()) if self.shared else itertools.islice(seeds, episode + 1, None)
        self.seeds = itertools.islice(seeds, episode, None)
        self.group = seeds if isinstance(seeds, GroupSeeds) else None
        self.failures, self.fault = 0, ""
        said = map(Said, responses, truncated or [False] * len(responses))
        self._begin(episode, next(self.seeds, None), said, ended=None)
        self.shown = shown

    def leave(self, ended: Step | EnvError) -> None:
        """Go to the next episode. One of a group that could not begin has another in its place."""
        if self.group and not self.responses:
            self._begin(self.episode, self.group.instead(), [], ended)
        else:
            self._begin(self.episode + 1, next(self.seeds, None), [], ended)

    def _begin(self, episode: int, seed: int | None, responses: Iterable[Said], ended) -> None:
        self.seed, self.following = seed, next(self.ahead, None)
        self.episode, self.responses = episode, list(responses)
        self.taken = len(self.responses)
        self.seen, self.first, self.steps, self.observation = None, None, [], None
        self.now, self.owed, self.latest = None, 0.0, None
        self.ended, self.shown = ended, ""

    @property
    def in_turn(self) -> bool:
        return self.taken < len(self.responses)

    def state(self) -> dict:
        """Return what `VecEnv.resume` needs, as JSON. An episode that cannot be played again is
        left: the next one will begin."""
        if self.observation and not self.observation.replayable:
            return dict(episode=self.episode + bool(self.responses), responses=[])
        shown = digest(self.observation.text) if self.observation else ""
        truncated = [response.truncated for response in self.responses]
        said = dict(responses=list(map(str, self.responses)), truncated=truncated)
        return dict(episode=self.episode, shown=shown, **said)

    def record(self, answer: Observation | Step) -> str:
        """Note what a reset or a step brought; returns what is wrong with it, if anything."""
        if isinstance(answer, Observation):
            self.seen, self.first, self.steps, now, self.owed = 0, answer, [], answer, 0.0
        else:
            self.seen, now = self.seen + 1, answer.observation
            if not self._add(self.numbered(answer, self.seen, self.now)):
                return UNTRAINED
        self.now = now
        if self.seen == self.taken:
            if any(step.done for step in self.steps) or self.observation not in (None, now):
                return ELSEWHERE
            if self.shown and self.shown != digest(now.text):
                return CHANGED
            self.observation, self.shown = now, ""
        elif self.seen > self.taken:  # a new turn; before, while seen < taken, it is a replay
            self.taken, self.steps, self.observation = self.seen, self.steps[-1:], now
        if self.seen == self.taken:
            self.latest = self.steps[-1] if self.steps else None
        return ""

    def _add(self, step: Step) -> bool:
        """Add a Step. What answered a call that is no sample belongs to the turn before it, or, if
        there is none, to the first one; returns whether there will be one."""
        if self.now.trained:
            if self.owed:
                step, self.owed = replace(step, reward=step.reward + self.owed), 0.0
        elif self.steps:
            turn = self.steps.pop()
            kept = {name: getattr(turn, name) for name in OF_THE_TURN}
            step = replace(step, reward=turn.reward + step.reward, **kept)
        else:
            self.owed += step.reward
            return not step.done
        self.steps.append(step)
        return True

    def cut(self, fault: str) -> Step | None:
        """The Step of a turn in which the environment failed: it does nothing but end. None: it
        failed in a call before the first turn, which only a panel counts"""
        if self.latest and not self.latest.complete:
            return replace(self.latest, truncated=True, fault=fault)
        if not (self.observation.trained or self.shared):
            return None
        response = self.responses[-1]
        said = dict(response=response, said=response, action="", action_at=split(response))
        ends = dict(valid=True, reward=0.0, terminated=False, truncated=True, success=False)
        step = Step(**said, **ends, observation=self.observation, fault=fault)
        return self.numbered(step, len(self.responses), self.observation)

    def numbered(self, step: Step, number: int, saw: Observation) -> Step:
        """Add what is needed to play the turn again, and what tells equal observations."""
        where = dict(episode=self.episode, seed=self.seed, number=number)
        return replace(step, **where, seen=saw.text, saw=digest(repr((saw.text, saw.messages))))


def digest(text: str) -> str:
    """Return a short hash of an observation."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
