"""The processes of a run, called ranks, for code that only computes. Here there is a single one.

`ppo.distributed.LaunchedRanks` has the same methods for many. After a collection every rank holds
the whole batch. Each computes its share of the rows, and sums give every rank all results.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor


class Ranks:
    rank, size = 0, 1

    @cached_property
    def device(self) -> str:
        return "cuda" if torch.cuda.is_available() else "cpu"

    def share(self, n: int) -> range:
        """Return this rank's part of n things. Parts are equally long if the ranks divide n."""
        return range(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def deal(self, rows: list, cut: Callable[[list], list]) -> list:
        """Return this rank's part of sorted rows, cut into batches: equally many on all ranks."""
        # Every size-th row: each rank gets its share of the long turns.
        cuts = [cut(rows[rank :: self.size]) for rank in range(self.size)]
        mine = cuts[self.rank]
        # Where ZeRO shards the model, a pass is a collective: others wait for a rank that has none.
        return mine + [[]] * (max(map(len, cuts)) - len(mine))

    def gather(self, items: list) -> list:
        """Return the lists of all ranks, one after the other."""
        return items

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up the tensors of all ranks, in place."""
        return tensor

    def wait(self) -> None:
        """Return when all ranks are here."""
        self.gather([])

    def first(self, thing):
        """Return what rank 0 has."""
        return self.gather([thing])[0]


ALONE = Ranks()
