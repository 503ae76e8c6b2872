"""The processes of a run are called ranks. `Ranks` is a run with a single process.

`ppo.distributed.LaunchedRanks` has the same methods for several. After a collection every rank
holds the whole batch. Each rank computes its share of the rows, and sums give every rank the
results of all.
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
        """Return this rank's part of n items. Parts have equal lengths if the ranks divide n."""
        return range(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def deal(self, rows: list, cut: Callable[[list], list]) -> list:
        """Return this rank's part of sorted rows, cut into batches: equally many on all ranks."""
        # Every size-th row: each rank gets its share of the long turns.
        cuts = [cut(rows[rank :: self.size]) for rank in range(self.size)]
        mine = cuts[self.rank]
        # Where ZeRO shards the model, a pass is a collective: others wait for a rank that has none.
        return mine + [[]] * (max(map(len, cuts)) - len(mine))

    def gather(self, items: list) -> list:
        """Return the concatenated lists of all ranks."""
        return items

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up the tensors of all ranks, in place."""
        return tensor

    def wait(self) -> None:
        """Wait until all ranks have called this."""
        self.gather([])

    def first(self, thing):
        """Return rank 0's `thing` on every rank."""
        return self.gather([thing])[0]


ALONE = Ranks()
