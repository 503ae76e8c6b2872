"""A warm-up that computes the trunk once: it is frozen there, while every round scores all turns.

The hidden states behind the trunk are kept in the host's memory, up to a quarter of what is free;
turns beyond that are computed in every round. Nothing is rounded: the critic is the same to the
bit. `ppo.warmup` is the method, and needs none of this.
"""

from contextlib import contextmanager, nullcontext

from torch import Tensor

from common.host_memory import free_bytes
from common.wrapper import Wrapper
from ppo.model.decoder import embed
from ppo.model.known_states import KnownStates
from ppo.warmup import WarmUp
from storage.minibatch import MicroBatch


class QuickWarmUp(WarmUp):
    """`WarmUp`, with the same result in less time."""

    def __call__(self, agent, batch, estimator) -> dict[str, float]:
        if agent.actor_critic.whole is nullcontext:  # with shards, a pass takes all ranks
            batch = ScoredQuickly(batch, agent.actor_critic)
        return super().__call__(agent, batch, estimator)


class ScoredQuickly(Wrapper):
    """A batch that scores values with the states of the trunk that it knows."""

    def __init__(self, batch, actor_critic):
        super().__init__(batch)
        self.trunk = KnownTrunk(actor_critic, free_bytes() // 4 // batch.scoring.ranks.size)

    def score_values(self, actor_critic) -> None:
        with self.trunk.used():
            self.inner.score_values(actor_critic)


class KnownTrunk:
    """Remembers what an actor-critic's trunk returns for a micro-batch. room: bytes"""

    def __init__(self, actor_critic, room: int):
        self.actor_critic, self.compute = actor_critic, actor_critic._trunk
        self.states = KnownStates(room)

    @contextmanager
    def used(self):
        """The actor-critic asks this object in here, and computes as usual elsewhere: the random
        minibatches of a round would fill the memory, and never come again."""
        self.actor_critic._trunk = self
        try:
            yield
        finally:
            del self.actor_critic._trunk  # the method is there again

    def __call__(self, batch: MicroBatch) -> tuple[Tensor, Tensor, dict]:
        """Return what `ActorCritic._trunk` returns."""
        if (known := self.states.find(batch)) is not None:
            _, mask, options = embed(
                self.actor_critic.lm, batch.ids, batch.response_mask, self.actor_critic.compute
            )
            return known, mask, options
        hidden, *others = self.compute(batch)
        self.states.keep(batch, hidden)
        return hidden, *others
