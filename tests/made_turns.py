"""Turns made by hand for tests of the storage and of what is computed from it.

The stub below makes every number readable: V before a token is the id of the token before it / 10,
so the value of a turn's first token is the last id of its prompt / 10.
"""

from conftest import FakePrompt, FakeStep

from ppo.engines.contract import Response
from ppo.model.actor_critic import Scores
from storage.rollout import RolloutStorage


class Stub:
    """log pi of token i is -i / 100, V before a token is the id of the token before it / 10."""

    def __call__(self, batch):
        logps = -batch.tokens / 100
        return Scores(logps, logps * 0, self.values(batch))

    def values(self, batch):
        return batch.ids[:, :-1][batch.response_mask[:, 1:]] / 10


def stub_reference(batch):
    """log pi_0 of token i is -i / 200: log pi - log pi_0 = -i / 200."""
    return -batch.tokens / 200


def answer(prompt, ids, logps=None, pieces=None, **flags) -> Response:
    pieces = pieces or ["x"] * len(ids)
    logps = logps or [-1.0] * len(ids)
    truncated = flags.pop("truncated", False)
    return Response(FakePrompt(prompt, **flags), ids, logps, "".join(pieces), pieces, truncated)


def play(rollouts, n, response, limit=None, **step):
    rollouts.act(n, response)
    played = FakeStep(**step)
    rollouts.insert(n, played)
    if limit is not None and rollouts.cuts(played):
        rollouts.limit(n, FakePrompt(limit))


def two_by_two(**options) -> RolloutStorage:
    """Environment 0 goes on, then terminates; environment 1 meets a time limit, then goes on."""
    rollouts = RolloutStorage(2, 2, 10**6, **options)
    play(rollouts, 0, answer([1, 2], [5, 6, 7]), reward=0.5)
    play(rollouts, 1, answer([9], [5]), truncated=True, limit=[1, 1, 6])
    play(rollouts, 0, answer([1, 3], [8]), reward=1.0, terminated=True)
    rollouts.finish(0, FakePrompt([4]))
    play(rollouts, 1, answer([2, 2], [3, 4]), reward=0.25)
    rollouts.finish(1, FakePrompt([1, 2, 8]))
    rollouts.join()
    return rollouts


def scored(rollouts=None) -> RolloutStorage:
    rollouts = rollouts or two_by_two()
    rollouts.score(Stub(), stub_reference, [rollouts.rows])
    return rollouts
