"""One vLLM for several ranks: each holds a part of the weights, and all make the same steps.

vLLM leaves the schedule to each rank (its "external launcher"): with the same requests in the same
order all ranks sample the same tokens. So before each step the ranks tell one another their new
requests, and afterwards each takes the answers to its own.
"""

from contextlib import contextmanager, suppress
from threading import Thread

import torch.distributed as dist

from common.engine_flag import check_sharing
from common.errors import RanksApart, RunError
from ppo.distributed import PATIENCE, gathered

HEARD_SECONDS = 10.0  # in which ranks that are not inside a step hear of a failure


class Sharing:
    """The ranks that share an engine: `size` that follow one another. All ranks make theirs.

    UserError: the run's ranks do not divide so
    """

    def __init__(self, size: int):
        check_sharing(f"vllm:{size}", launched())
        self.size, self.rank, self.group = size, 0, None
        self.failure, self.told = "", False  # of the engine on one of these ranks
        if size > 1:
            self.group, _ = dist.new_subgroups(size, timeout=PATIENCE, backend="gloo")
            self.rank = dist.get_rank(self.group)

    def gather(self, thing) -> list:
        """Return the `thing` of each of these ranks. RunError: the engine has failed on one"""
        if self.size == 1:
            return [thing]
        reports = gathered([(self.failure, thing)], self.group)
        failures = [failure for failure, _ in reports if failure]
        self.told = bool(failures)
        if failures and not self.failure:
            self.failure = failures[0]
            raise RunError(f"the engine of {self.size} ranks failed on another one ({failures[0]})")
        return [thing for _, thing in reports]

    @contextmanager
    def step(self):
        """`with sharing.step():` all ranks compute. An error becomes the `failure`."""
        try:
            yield
        except Exception as error:
            self.failure = str(error) or repr(error)
            raise

    def tell(self) -> None:
        """Tell the others about the failure. RanksApart: they do not hear it: they are blocked
        inside the step, and wait for this rank."""

        def gather() -> None:
            with suppress(RuntimeError):  # one of them is dead
                self.gather(None)

        if self.size > 1 and not self.told:
            telling = Thread(target=gather, daemon=True)
            telling.start()
            telling.join(HEARD_SECONDS)
            if not self.told:
                raise RanksApart(self.failure)


def launched() -> int:
    """Return the number of the run's ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1
