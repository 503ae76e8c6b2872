"""Generation by transformers in lock-step: all queued prompts are answered in one batch.

The engine computes with the trainer's own module, so it needs no copy of the weights. It is the
fastest engine for small models on a CPU; `ppo.engines.vllm` is the one for large models.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from ppo.engines.contract import Engine, Response
from ppo.model.decoder import precision


class TransformersEngine(Engine):
    """Samples all queued prompts to their ends in one step."""

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        # Each response has a generator of its own, so its noise does not depend on its neighbours.
        self.queue[slot] = prompt, np.random.default_rng(seed)

    def push_weights(self, actor_critic) -> None:
        self.lm, self.dtype = actor_critic.lm, actor_critic.dtype

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Response]]:
        if not self.queue:
            return []
        queue, self.queue = self.queue, {}
        prompts, rngs = zip(*queue.values(), strict=True)
        with precision(self.lm.device, self.dtype):
            ids, logps = self._generate(prompts, rngs)
        return list(zip(queue, map(self.response, prompts, ids, logps), strict=True))

    def _generate(self, prompts: tuple, rngs: tuple[np.random.Generator, ...]):
        """Sample a response to each prompt. Returns ids and log-probs, both ragged lists."""
        limits = [self.limit_of(prompt) for prompt in prompts]
        temperatures = torch.tensor([self.temperature_of(p) for p in prompts]).to(self.lm.device)
        out_ids, out_logps = [[] for _ in prompts], [[] for _ in prompts]
        rows = list(range(len(prompts)))  # the prompt of each row of the batch
        unfinished = set(rows)  # prompts whose responses are not complete
        ids, mask, positions = pad_left(prompts, self.lm.device)  # each (B, T)
        cache = DynamicCache(config=self.lm.config)
        for _ in range(max(limits)):
            logits = self.lm(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,  # those of a whole prompt would be large: (B, T, V)
            ).logits[:, -1]  # (B, V)
            tokens, logps = sample(logits, temperatures[rows], [rngs[row] for row in rows])  # (B,)
            for row, token, logp in zip(rows, tokens.tolist(), logps.tolist(), strict=True):
                if row in unfinished:  # else the row only waits for its removal
                    out_ids[row].append(token)
                    out_logps[row].append(logp)
                    if token in self.ends or len(out_ids[row]) == limits[row]:
                        unfinished.remove(row)
            if not unfinished:
                break
            ids, positions = tokens.unsqueeze(-1), positions[:, -1:] + 1  # the cache has the rest
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=-1)
            # Removing rows copies the whole cache, so it is done when half of them are complete.
            if len(unfinished) <= len(rows) // 2:
                kept = [b for b, row in enumerate(rows) if row in unfinished]
                keep = torch.tensor(kept, device=ids.device)
                ids, positions, mask = ids[keep], positions[keep], mask[keep]
                cache.reorder_cache(keep)  # the one that caches of linear attention have, too
                rows = [rows[b] for b in kept]
        return out_ids, out_logps


def pad_left(prompts: tuple, device) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, attention mask and positions of prompts of different lengths, each (B, T).

    Padding is on the left, so that all rows grow at the same end.
    """
    ids = [torch.tensor(prompt.ids) for prompt in prompts]
    ids = pad_sequence(ids, batch_first=True, padding_side="left", padding_value=-1).to(device)
    mask = (ids >= 0).long()
    # Positions count a prompt's own tokens, as in training, where padding is on the right.
    return ids.clamp(min=0), mask, (mask.cumsum(-1) - 1).clamp(min=0)


def sample(logits: Tensor, temperature: Tensor, rngs: list[np.random.Generator]):
    """Sample one token per row of logits (B, V), at temperatures (B,). Returns tokens and
    log-probs, both (B,). Greedy sampling (temperature 0) reports log-probs at temperature 1."""
    greedy = temperature == 0
    logps = (logits.float() / temperature.masked_fill(greedy, 1.0).unsqueeze(-1)).log_softmax(-1)
    # Each row's distribution function is inverted at a uniform number from the row's own generator;
    # torch.multinomial has one generator for all rows. In float64, because a sum of V terms rounds.
    cdf = logps.double().exp().cumsum(-1)  # (B, V)
    uniform = torch.tensor([rng.random() for rng in rngs], dtype=cdf.dtype, device=cdf.device)
    tokens = torch.searchsorted(cdf, (uniform * cdf[:, -1]).unsqueeze(-1), right=True)
    tokens = tokens.squeeze(-1).clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(-1), tokens)
    return tokens, logps.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
