"""The processes of a run (its ranks), as seen by code that only computes. Here there is one.

`ppo.distributed.LaunchedRanks` has the same methods for many processes. After a collection every
rank holds the whole batch. Each rank computes its share of the rows, and sums bring the results
together, so advantages, denominators and metrics are those of the whole batch on every rank.
"""

import torch
from torch import Tensor


class Ranks:
    rank, size = 0, 1

    @property
    def device(self) -> str:
        return "cuda" if torch.cuda.is_available() else "cpu"

    def share(self, n: int) -> range:
        """The part of n things that is this rank's: all are equally long where n divides."""
        return range(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def gather(self, items: list) -> list:
        """The lists of all ranks, one after the other."""
        return items

    def sum(self, tensor: Tensor) -> Tensor:
        """Over the ranks, in place."""
        return tensor

    def wait(self) -> None:
        """Until all ranks are here."""
        self.gather([])

    def first(self, thing):
        """What rank 0 has."""
        return self.gather([thing])[0]


ALONE = Ranks()
