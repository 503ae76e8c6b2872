"""One vLLM for several ranks: each holds a part of the weights, and all make the same steps.

vLLM leaves the schedule to each rank (its "external launcher"): with the same requests in the same
order all ranks sample the same tokens. So in each step the ranks tell one another their new
requests, and each takes the answers to its own.
"""

from dataclasses import dataclass

import torch.distributed as dist

from common.chat import Sampling
from common.engine_flag import check_sharing
from common.ranks import ALONE
from ppo.distributed import PATIENCE, gathered


@dataclass(frozen=True)
class Request:
    """What vLLM is asked: all that a response depends on besides the weights."""

    ids: list[int]
    sampling: Sampling
    temperature: float
    seed: int
    limit: int  # tokens
    ends: frozenset[int]


class Neighbours:
    """The ranks that share an engine: `size` that follow one another. All ranks make theirs."""

    def __init__(self, size: int):
        self.group, _ = dist.new_subgroups(size, timeout=PATIENCE, backend="gloo")
        self.rank, self.size = dist.get_rank(self.group), size

    def gather(self, items: list) -> list:
        """Return the concatenated lists of these ranks."""
        return gathered(items, self.group)


def neighbours(size: int):
    """Return the ranks that share an engine. UserError: the run's ranks do not divide so"""
    check_sharing(f"vllm:{size}", launched())
    return Neighbours(size) if size > 1 else ALONE


def launched() -> int:
    """Return the number of the run's ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1
