"""How close scoring and training come to what the processor can do, on turns of a real model.

    python -m benchmarks.roofline [--operators] [FLAGS OF main.py]
    python -m benchmarks.roofline --model smollm2 --memory-length 0 --n-env 16 --e-len 4

Three ways to compute the turns of a batch, one after the other in each round:

    products      the matrix products of the layers and of the head alone: the limit
    transformers  lm(ids), and for training its backward pass: no padding, no critic, no optimizer
    this trainer  scoring by the reference; an epoch of PPO with the critic and AdamW's steps

Products and transformers compute the head at the response positions alone, as the trainer does.
`--operators` prints where the time of an epoch goes.
"""

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import seconds
from benchmarks.training import scored_batch, train
from common.cli import Parser
from ppo.model.actor_critic import Reference
from ppo.model.decoder import precision

ROUNDS = 3


class Work:
    """The turns of a batch as the micro-batches of its update, with what is computed of them."""

    def __init__(self, agent, batch):
        self.model, self.compute = agent.actor_critic, agent.actor_critic.compute
        self.lm, self.dtype = self.model.lm, self.compute.dtype
        minibatches = agent.plan(batch)[0]
        self.micro = [micro for rows in minibatches for micro in batch.micro_batches(rows)]
        self.tokens = sum(sample.length for sample in batch.samples)
        self.reference = Reference(self.lm, self.compute)
        # (ids (B, L), response tokens of a row): as many tokens as the turns have, without padding
        self.dense = [self._without_padding(micro, batch) for micro in self.micro]

    def _without_padding(self, micro, batch) -> tuple[torch.Tensor, int]:
        turns = [batch.samples[row] for row in micro.rows.tolist()]
        width = round(sum(turn.length for turn in turns) / len(turns))
        return micro.ids[:, :width], round(len(micro.tokens) / len(turns))

    def products(self, backward: bool) -> None:
        for ids, share in self.dense:
            for layer in self.lm.model.modules():
                if isinstance(layer, nn.Linear):
                    multiply(ids.numel(), layer.weight, self.dtype, backward)
            multiply(share * len(ids), self.lm.lm_head.weight, self.dtype, backward)

    def transformers(self, backward: bool) -> None:
        for ids, share in self.dense:
            with torch.set_grad_enabled(backward), precision(ids.device, self.dtype):
                scores = self.lm(input_ids=ids, logits_to_keep=share, use_cache=False).logits
            if backward:
                wanted = ids[:, -share:].flatten()
                nn.functional.cross_entropy(scores.flatten(0, 1).float(), wanted).backward()
        self.lm.zero_grad()

    def score(self) -> None:
        for micro in self.micro:
            self.reference(micro)


def multiply(n: int, weight: torch.Tensor, dtype: torch.dtype, backward: bool) -> None:
    """Compute a linear layer's products for n tokens: forward, and the two of its gradients."""
    weight = weight.detach().to(dtype)  # (outputs, inputs)
    x = torch.ones(n, weight.shape[1], dtype=dtype)
    y = x @ weight.T
    if backward:
        _ = y @ weight, y.T @ x


def show(name: str, tokens: int, ways: dict[str, Callable[[], None]]) -> None:
    """Print the tokens per second of each way, and the trainer's share of the others'."""
    for work in ways.values():
        work()
    rounds = [{way: seconds(work) for way, work in ways.items()} for _ in range(ROUNDS)]
    rates = {way: tokens / statistics.median(took[way] for took in rounds) for way in ways}
    shares = [
        statistics.median(took[way] / took["this trainer"] for took in rounds)
        for way in ("products", "transformers")
    ]
    shown = "".join(f"{rate:14,.0f}" for rate in rates.values())
    print(f"{name:10s}{shown}{shares[0]:14.2f}{shares[1]:14.2f}", flush=True)


def main() -> None:
    parser = Parser("benchmarks.roofline", description=__doc__.splitlines()[0])
    parser.add_argument("--operators", action="store_true", help="print the slowest operators")
    args, flags = parser.parse_known_args()
    agent, batch = scored_batch([*flags, "--ppo-epoch", "1", "--w-epoch", "0"])
    work = Work(agent, batch)
    print(f"{len(batch.rows)} turns of {work.tokens / len(batch.rows):.0f} tokens, {work.dtype}, "
          f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)")  # fmt: skip
    heads = ("products", "transformers", "this trainer", "of products", "of transf.")
    print(f"{'tokens/s':10s}" + "".join(f"{head:>14s}" for head in heads))
    scoring = {
        "products": partial(work.products, False),
        "transformers": partial(work.transformers, False),
        "this trainer": work.score,
    }
    training = {
        "products": partial(work.products, True),
        "transformers": partial(work.transformers, True),
        "this trainer": partial(train, agent, batch),
    }
    show("scoring", work.tokens, scoring)
    show("training", work.tokens, training)
    if args.operators:
        with profile(activities=[ProfilerActivity.CPU]) as found:
            train(agent, batch)
        print(found.key_averages().table("self_cpu_time_total", row_limit=20))


if __name__ == "__main__":
    main()
