"""Turns made by hand, for tests of the storage and of the computations that use it.

The stub's numbers can be derived by hand: V before a token is the previous token's id / 10, so the
value of a turn's first token is the last id of its prompt / 10.
"""

from conftest import make_collection, make_prompt, make_response, make_step

from ppo.model.actor_critic import Scores
from storage.batch import Batch
from storage.collection import Collection


class Stub:
    """log pi of token i is -i / 100, V before a token is the previous token's id / 10."""

    def __call__(self, batch):
        logps = -batch.tokens / 100
        return Scores(logps, logps * 0, self.values(batch))

    def values(self, batch):
        return batch.ids[:, :-1][batch.response_mask[:, 1:]] / 10


def stub_reference(batch):
    """A reference: log pi_0 of token i is -i / 200, so that log pi - log pi_0 = -i / 200."""
    return -batch.tokens / 200


answer = make_response


def play(rollouts, n, response, limit=None, **step):
    rollouts.keep_response(n, response)
    played = make_step(**step)
    rollouts.insert(n, played)
    if limit is not None and rollouts.needs_bootstrap(played):
        rollouts.bootstrap(n, make_prompt(limit))


def two_by_two(fault="", **options) -> Collection:
    """Collect two turns of two environments.

    Environment 0 goes on, then terminates; environment 1 reaches a time limit, then goes on.
    fault: the fault that ends environment 1's first episode instead of the time limit
    """
    rollouts = make_collection(2, 2, **options)
    play(rollouts, 0, answer([1, 2], [5, 6, 7]), reward=0.5)
    play(rollouts, 1, answer([9], [5]), truncated=True, fault=fault, limit=[1, 1, 6])
    play(rollouts, 0, answer([1, 3], [8]), reward=1.0, terminated=True)
    rollouts.finish(0, make_prompt([4]))
    play(rollouts, 1, answer([2, 2], [3, 4]), reward=0.25)
    rollouts.finish(1, make_prompt([1, 2, 8]))
    return rollouts


def scored(rollouts: Collection | None = None) -> Batch:
    batch = (rollouts or two_by_two()).join()
    batch.score(Stub(), stub_reference, [batch.rows])
    return batch
