"""Hidden states that are known: the result of frozen layers for a micro-batch that comes again."""

from torch import Tensor, stack

from storage.minibatch import MicroBatch


class KnownStates:
    """Keeps hidden states (B, L, D) of micro-batches by their content, in the host's memory.

    room: bytes; what comes once they are full is not kept. Nothing is rounded.
    """

    def __init__(self, room: int):
        self.room = room
        self.states: dict[tuple, Tensor] = {}

    def find(self, batch: MicroBatch) -> Tensor | None:
        """Return what was kept of an equal micro-batch, on its device."""
        known = self.states.get(content(batch))
        return known if known is None else known.to(batch.ids.device)

    def keep(self, batch: MicroBatch, hidden: Tensor) -> None:
        if size_of(hidden) <= self.room:
            self.room -= size_of(hidden)
            self.states[content(batch)] = hidden.cpu()

    def clear(self) -> None:
        self.room += sum(map(size_of, self.states.values()))
        self.states.clear()


def content(batch: MicroBatch) -> tuple:
    ids = stack([batch.ids, batch.response_mask]).cpu()
    return ids.shape, ids.numpy().tobytes()


def size_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
