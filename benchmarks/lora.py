"""How much of an adapter is left when it is merged into weights in bfloat16.

    python -m benchmarks.lora

Adapters of rank 8 with random B stand beside the embedded model's weights, which are bfloat16
numbers. Log-probs of random tokens are computed in fp32, so rounding happens only in the merge.
`arrives` is the share of the adapter's effect on them that the merged weights have (the slope of a
regression, with its standard error), and `error` is the size of the rest.
"""

from copy import deepcopy

import torch

from common.cli import Parser
from ppo.model.lora import adapted
from ppo.model.make import build
from ppo.model.pretrained import load_lm
from recipes import TINY

DRAWS = 16  # of B, for each standard deviation


def main() -> None:
    Parser("benchmarks.lora", description=__doc__.splitlines()[0]).parse_args()
    lm, _, _ = load_lm(str(TINY), "cpu")
    for p in lm.parameters():
        p.data = p.data.bfloat16().float()
    plain = deepcopy(lm)
    torch.manual_seed(0)
    actor = build(lm, critic_layers=0, lora_rank=8)
    ids = torch.randint(lm.config.vocab_size, (32, 64))
    before = token_logps(plain, ids)
    print(f"{'std of B':>8s} {'effect':>8s} {'arrives':>8s} {'+-':>5s} {'error':>6s}")
    for std in (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2):
        drawn = []
        for _ in range(DRAWS):
            for layer in adapted(lm).values():
                torch.nn.init.normal_(layer.lora_B["default"].weight, std=std)
            weights = {name: weight.bfloat16().float() for name, weight in actor.weights()}
            merged = deepcopy(plain)
            merged.load_state_dict(weights, strict=False)
            effect = token_logps(lm, ids) - before
            arrived = token_logps(merged, ids) - before
            slope = (arrived * effect).sum() / effect.square().sum()
            error = (arrived - effect).norm() / effect.norm()
            drawn.append(torch.stack([effect.abs().mean(), slope, error]))
        effect, slope, error = torch.stack(drawn).mean(0)
        deviation = torch.stack(drawn)[:, 1].std() / DRAWS**0.5
        print(f"{std:8.0e} {effect:8.1e} {slope:8.2f} {deviation:5.2f} {error:6.2f}", flush=True)


@torch.no_grad()
def token_logps(lm, ids: torch.Tensor) -> torch.Tensor:
    """Return the log-prob of each id but the first ones."""
    logps = lm(ids).logits[:, :-1].log_softmax(-1)
    return logps.gather(2, ids[:, 1:, None]).squeeze(2)


if __name__ == "__main__":
    main()
