"""Generation by transformers, in lock-step batches through the trainer's own module."""

import time

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from ppo.engines.contract import CannotRun, Engine, Response
from ppo.model.decoder import precision


class TransformersEngine(Engine):
    """Runs all queued prompts to their ends at once. It has no copy of the weights.

    Prompts are padded on the left, so that all rows grow at the same end. Complete rows leave the
    batch when they are half of it.

    sharded: whether ZeRO stage 3 shards the weights, which this engine cannot work with
    untrained: whether programs may ask for top_p, JSON and the like, which it does not have
    """

    def __init__(self, tokenizer, ends, response_limit, temperature, *, sharded=False,
                 untrained=False, **others):  # fmt: skip
        super().__init__(tokenizer, ends, response_limit, temperature, **others)
        if untrained:
            raise CannotRun("--endpoint-sampling untrained needs --engine vllm, which has top_p "
                            "and the like")  # fmt: skip
        if sharded:
            raise CannotRun("--zero-stage 3 needs --engine vllm: transformers needs whole weights")

    def submit(self, slot: int, prompt, seed: tuple[int, ...]) -> None:
        self.queue[slot] = prompt, np.random.default_rng(seed)

    def push_weights(self, actor_critic) -> None:
        self.lm, self.dtype = actor_critic.lm, actor_critic.dtype

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Response]]:
        if not self.queue:
            return []
        began = time.perf_counter()
        slots, (prompts, rngs) = list(self.queue), zip(*self.queue.values(), strict=True)
        self.queue = {}
        with precision(self.lm.device, self.dtype):
            ids, logps = self._generate(prompts, rngs)
        responses = list(map(self.response, prompts, ids, logps))
        self.account(began, responses, busy=sum(map(len, ids)) / max(map(len, ids)))
        return list(zip(slots, responses, strict=True))

    def _generate(self, prompts: tuple, rngs: tuple[np.random.Generator, ...]):
        """Sample a response to each prompt. Returns ids and log-probs, both ragged lists."""
        limits, heat = map(self.limit_of, prompts), map(self.temperature_of, prompts)
        limits, heat = list(limits), torch.tensor(list(heat), device=self.lm.device)
        prompts = [torch.tensor(prompt.ids) for prompt in prompts]
        out_ids, out_logps = [[] for _ in prompts], [[] for _ in prompts]
        rows = list(range(len(prompts)))  # prompt that each row of the batch belongs to
        left = dict(batch_first=True, padding_side="left", padding_value=-1)
        ids = pad_sequence(prompts, **left).to(self.lm.device)
        ids, mask = ids.clamp(min=0), (ids >= 0).long()
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache(config=self.lm.config)
        options = dict(past_key_values=cache, use_cache=True, logits_to_keep=1)
        ended = lambda row: len(out_ids[row]) == limits[row] or out_ids[row][-1] in self.ends
        for _ in range(max(limits)):
            output = self.lm(input_ids=ids, attention_mask=mask, position_ids=positions, **options)
            noise = [rngs[row] for row in rows]
            tokens, logps = sample(output.logits[:, -1], heat[rows], noise)  # both (B,)
            for row, token, logp in zip(rows, tokens.tolist(), logps.tolist(), strict=True):
                if not out_ids[row] or not ended(row):
                    out_ids[row].append(token)
                    out_logps[row].append(logp)
            alive = [b for b, row in enumerate(rows) if not ended(row)]
            if not alive:
                break
            ids, positions = tokens.unsqueeze(-1), positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=-1)
            if len(alive) <= len(rows) // 2:
                keep = torch.tensor(alive, device=ids.device)
                ids, positions, mask = ids[keep], positions[keep], mask[keep]
                cache.batch_select_indices(keep)
                rows = [rows[b] for b in alive]
        return out_ids, out_logps


def sample(logits: Tensor, temperature: Tensor, rngs: list[np.random.Generator]):
    """Sample one token per row of logits (B, V), at temperatures (B,). Returns tokens and
    log-probs, both (B,).

    Each row's distribution function is inverted at a uniform number from the row's own generator,
    so that a response does not depend on its neighbours. Greedy sampling (temperature 0) reports
    log-probs at temperature 1.
    """
    greedy = temperature == 0
    logps = (logits.float() / temperature.masked_fill(greedy, 1.0).unsqueeze(-1)).log_softmax(-1)
    cdf = logps.double().exp().cumsum(-1)  # (B, V)
    uniform = torch.tensor([rng.random() for rng in rngs], dtype=cdf.dtype, device=cdf.device)
    tokens = torch.searchsorted(cdf, (uniform * cdf[:, -1]).unsqueeze(-1), right=True)
    tokens = tokens.squeeze(-1).clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logits.argmax(-1), tokens)
    return tokens, logps.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
