"""A custom engine: one prompt at a time, one token at a time, without a cache.

    python main.py --engine examples.plain_engine:PlainEngine

It is as slow as an engine can be, and shows everything that the trainer needs of one. It samples
like the transformers engine, so equal seeds give equal responses.
"""

import numpy as np
import torch

from ppo.engines.contract import Engine
from ppo.engines.lockstep import sample
from ppo.model.decoder import precision


class PlainEngine(Engine):
    """Answers the oldest prompt of the queue in each step, with the trainer's own weights."""

    def submit(self, slot, prompt, seed) -> None:
        # The sampling noise depends on the seed alone, not on the order of the queue.
        self.queue[slot] = (prompt, np.random.default_rng(seed))

    def push_weights(self, actor_critic) -> None:
        self.lm, self.dtype = actor_critic.lm, actor_critic.dtype

    @torch.inference_mode()
    def step(self) -> list:
        if not self.queue:
            return []
        slot = next(iter(self.queue))
        prompt, rng = self.queue.pop(slot)
        ids, logps = [], []  # the trainer trains on exactly these ids
        while len(ids) < self.limit_of(prompt) and not (ids and ids[-1] in self.ends):
            token, logp = self._next(prompt.ids + ids, self.temperature_of(prompt), rng)
            ids.append(token)
            logps.append(logp)
        return [(slot, self.response(prompt, ids, logps))]

    def _next(self, ids, temperature, rng) -> tuple[int, float]:
        """Return the token that follows `ids`, and its log-prob."""
        device = self.lm.device
        with precision(device, self.dtype):
            logits = self.lm(torch.tensor([ids], device=device), logits_to_keep=1).logits[:, -1]
        token, logp = sample(logits, torch.tensor([temperature], device=device), [rng])
        return token.item(), logp.item()
