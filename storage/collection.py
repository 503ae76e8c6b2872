"""Collection: the turns of N environments while they are being played.

`main.collect` fills ragged lists, one for each environment, because each has its own pace:

    keep_response  a response was sampled      bootstrap  the prompt at a time limit is known
    insert         its turn is complete        finish     the prompt s_{E+1} is known

`join` brings the lists of all ranks together and returns them as a `Batch` of tensors. A schedule
decides how many turns an environment takes and when it is asked for the next one. `FixedTurns` is
the paper's; others stand in storage/schedules.py and ppo/evaluation.py.
"""

from array import array
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

from storage.batch import Batch, Scoring
from storage.episodes import Episodes


class Turn(NamedTuple):
    response: object  # a Response, with the prompt that it answers
    step: object  # what the environment made of it


@dataclass(frozen=True)
class FixedTurns:
    """The paper's schedule: exactly E = e_len turns of each environment, each at its own pace.

    Episodes go on across batches, so long episodes are in a batch as often as short ones. The
    methods get the turns that each of this rank's environments has completed in this batch.
    """

    e_len: int

    def wants(self, n: int, turns: list[list[Turn]]) -> bool:
        """Whether environment n takes another turn in this batch."""
        return len(turns[n]) < self.e_len  # no more from a quick one: that would favour short turns

    def ready_to_ask(self, n: int, turns: list[list[Turn]]) -> Sequence[int]:
        """The environments to ask for a response once environment n has completed a turn."""
        return [n]  # at once: it waits for no slower environment

    def group_member(self, n: int) -> int:
        """Number of environment n among those that play the same episodes: their noise differs."""
        return 0


def at_faults(step) -> bool:
    """The paper's rule: a time limit is a failure, worth 0. But the policy had no part in a failure
    of the environment itself, so V of what it would have seen next stands for the rest."""
    return bool(step.fault) and step.truncated and not step.terminated


class Collection:
    """Collects this rank's share of N environments, numbered from 0.

    n_env: N, environments of all ranks together
    schedule: a `FixedTurns`, or an object with the same methods
    scoring: how the batch is scored later; it also knows the ranks
    needs_bootstrap: whether V stands for what a Step cut off, as `at_faults`
    make_batch: `Batch`, or a class with the same methods
    """

    def __init__(
        self, n_env: int, schedule, scoring: Scoring, *,
        needs_bootstrap: Callable = at_faults, make_batch: Callable = Batch,
    ):  # fmt: skip
        self.n_env, self.schedule, self.scoring = n_env, schedule, scoring
        self.ranks, self.share = scoring.ranks, scoring.ranks.share(n_env)
        self.needs_bootstrap, self.make_batch = needs_bootstrap, make_batch
        self.episodes = Episodes(n_env)  # it outlives the batch
        self._begin()

    def _begin(self) -> None:
        N = len(self.share)
        self.responses = [None] * N  # the response that each environment acts on
        self.turns: list[list[Turn]] = [[] for _ in range(N)]  # ragged until `join`
        self.next_prompts = [None] * N  # s_{E+1} of each environment: its value is the bootstrap
        self.final_prompts = {}  # (t, n) -> prompt at the final observation of an episode cut off

    def longer(self, times: int) -> "Collection":
        """Return an empty collection of `times` batches at once, with the same `episodes`."""
        collection = copy(self)  # shallow: the record of episodes is shared on purpose
        collection.schedule = replace(self.schedule, e_len=times * self.schedule.e_len)
        collection._begin()  # new lists: the copy shares the old ones
        return collection

    @property
    def full(self) -> bool:
        return all(prompt is not None for prompt in self.next_prompts)

    @property
    def counts(self) -> list[int]:
        """How many turns each environment has completed."""
        return [len(turns) for turns in self.turns]

    def progress(self) -> float:
        """Return the share of this rank's turns that are complete; whole episodes may pass 1."""
        # e_len is what the schedule asks for: at least so many turns on average
        return sum(self.counts) / (len(self.turns) * self.schedule.e_len)

    def wants(self, n: int) -> bool:
        return self.schedule.wants(n, self.turns)

    def ready_to_ask(self, n: int) -> Sequence[int]:
        return self.schedule.ready_to_ask(n, self.turns)

    def group_member(self, n: int) -> int:
        return self.schedule.group_member(n)

    def previous_ids(self, n: int) -> list[int]:
        """The ids of the last prompt of environment n and of its response; [] at first."""
        return self.episodes.previous_ids[self.share[n]]

    def keep_response(self, n: int, response) -> None:
        """Keep the response that environment n is about to act on."""
        self.responses[n] = with_arrays(response)  # a batch may hold a million turns
        self.episodes.previous_ids[self.share[n]] = all_ids(response)

    def insert(self, n: int, step) -> None:
        """Keep what environment n answered, which completes its turn."""
        done = self.next_prompts[n] is not None  # a further turn would miss its prompt's value
        assert not done, f"environment {n} already has its {len(self.turns[n])} turns"
        self.turns[n].append(Turn(self.responses[n], step))

    def bootstrap(self, n: int, prompt) -> None:
        """Keep what the agent would have seen after the turn just inserted, which was cut off."""
        self.final_prompts[len(self.turns[n]) - 1, n] = prompt  # not the next episode's first one

    def finish(self, n: int, prompt) -> None:
        """Keep the prompt s_{E+1} that follows the last turn of environment n."""
        self.next_prompts[n] = prompt  # nothing is sampled for it: only its value is needed

    def join(self) -> Batch:
        """Bring the turns of all ranks together: each rank gets the whole batch."""
        complete = not any(map(self.wants, range(len(self.turns))))
        assert complete, f"turns per environment {self.counts}, not {self.schedule.e_len}"
        first = self.share[0]  # global index of this rank's environment 0
        final = [((t, first + n), prompt) for (t, n), prompt in self.final_prompts.items()]
        final_prompts = dict(self.ranks.gather(final))
        turns, next_prompts = self.ranks.gather(self.turns), self.ranks.gather(self.next_prompts)
        batch = self.make_batch(turns, next_prompts, final_prompts, self.scoring, self.episodes)
        # Episodes are recorded in the order of turns: no figure depends on who answered first.
        steps = ((row % self.n_env, turn.step) for row, turn in batch.played.items())
        self.episodes.insert_batch(steps)
        for n, played in enumerate(turns):  # other ranks' turns, too: a checkpoint holds all
            self.episodes.previous_ids[n] = all_ids(played[-1].response)
        return batch

    def after_update(self, batch: Batch) -> None:
        """Forget the turns that were trained on. Environments go on from where they are."""
        self.episodes.turns += len(batch.rows)  # trained turns; those of the warm-up do not count
        self._begin()


def with_arrays(response):
    """Return a Response whose ids and log-probs are arrays, also those of its prompt: 4 bytes for
    each number instead of some 36."""
    prompt = replace(response.prompt, ids=array("i", response.prompt.ids))
    logps = array("f", response.logps)  # engines compute in float32, so this is exact
    return replace(response, prompt=prompt, ids=array("i", response.ids), logps=logps)


def all_ids(response) -> list[int]:
    """Return the ids of a prompt and its response."""
    return [*response.prompt.ids, *response.ids]
