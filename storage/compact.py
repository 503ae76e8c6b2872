"""What a batch holds of a response: its numbers in arrays, of 4 bytes each instead of some 36."""

from array import array
from dataclasses import replace

import torch
from torch import Tensor


def compact(response):
    """Return a Response whose ids and log-probs are arrays, also those of its prompt."""
    prompt = replace(response.prompt, ids=array("i", response.prompt.ids))
    logps = array("f", response.logps)  # engines compute in float32, so this is exact
    return replace(response, prompt=prompt, ids=array("i", response.ids), logps=logps)


def tensor(ids) -> Tensor:
    """Return some ids as a tensor, (len,)."""
    ids = array("i", ids)
    return torch.frombuffer(ids, dtype=torch.int32).long() if ids else torch.zeros(0).long()


def whole(response) -> list[int]:
    """Return the ids of a prompt and its response."""
    return [*response.prompt.ids, *response.ids]
