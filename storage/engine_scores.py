"""The engine's log-probs as log pi_old, without a pass of the actor (--tis-cap).

They are a little off, because the engine's kernels round differently. So the first ratios are not
1, and a cap bounds them (`ppo.terms.bounded_policy_loss`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from storage.minibatch import MicroBatch


class OldScores(NamedTuple):
    logps: Tensor  # (R,)
    values: Tensor | None  # (R,)


def engine_scores(batch, actor_critic, micro_batch: MicroBatch) -> OldScores:
    """Return the log-probs that the engine reported, and V; takes the place of
    `storage.batch.trained_scores`."""
    responses = [batch.played[row][0] for row in micro_batch.rows.tolist()]
    logps = torch.tensor([logp for response in responses for logp in response.logps])
    values = None if batch.values is None else actor_critic.values(micro_batch)
    return OldScores(logps.to(batch.device), values)
