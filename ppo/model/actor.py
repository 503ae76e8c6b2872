"""The actor without a critic, for advantages that need no values (GRPO, RLOO, ...)."""

from ppo.model.actor_critic import ActorCritic, Scores
from ppo.model.decoder import PLAIN, Compute
from storage.minibatch import MicroBatch


class ActorOnly(ActorCritic):
    """An actor-critic of which only the actor exists. Its Scores have no values."""

    def __init__(self, lm, compute: Compute = PLAIN):
        # The top layer is not the trunk's, so that its MLP can run at the responses alone.
        super().__init__(lm, 1, compute)

    def _add_critic(self) -> None:
        """Add nothing."""

    def forward(self, batch: MicroBatch, entropy_grad: bool = False, part="actor") -> Scores:
        return super().forward(batch, entropy_grad, "actor")
