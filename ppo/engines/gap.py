"""How far the engine's log-probs may be from the trainer's, and what it means if they are farther.

The engine samples with a program of its own. Rounding makes their log-probs differ a little; more
means that what is trained is not what was sampled.
"""

import math

# Mean |log-prob difference| per token between engine and trainer that rounding explains, at
# temperature 1. The bfloat16 bounds detect wrong weights, but not weights one small update old.
GAPS = {"float32": 1e-3, "bfloat16": 0.1}
# The same on prompts of random ids, where no token is likely and a deep model's logits are rounded
# most: SmolLM2-135M has .08 to .11 on them, and .002 on turns.
RANDOM_GAPS = {"float32": 1e-3, "bfloat16": 0.5}


def explained_gap(dtype: str, temperature: float, random_ids: bool = False) -> float:
    """Return the mean difference per token that rounding explains.

    temperature: 0 is greedy; random_ids: whether a prompt has them
    """
    gaps = RANDOM_GAPS if random_ids else GAPS
    return gaps[dtype] / min(1.0, temperature or 1.0)  # it divides the logits


class GapWarning:
    """Says once in a run that the gap of a batch is larger than rounding explains."""

    def __init__(self, dtype: str, temperature: float):
        self.bound, self.dtype, self.given = explained_gap(dtype, temperature), dtype, False

    def __call__(self, gap: float | None) -> str | None:
        """Return the warning if this batch is the first with such a gap; gap: None is unknown."""
        if self.given or gap is None or gap <= self.bound:  # a nan is not explained
            return None
        self.given = True
        size = f"{gap:.2g}" if math.isfinite(gap) else "a number that is not finite"
        return (
            f"warning: engine and trainer differ by {size} per token (engine/logp_gap_mean; "
            f"rounding explains {self.bound:g} in {self.dtype}): what is trained is not what was "
            "sampled. Likely causes: attention beyond a window or rope boundary, experts chosen "
            "otherwise, weights that were not taken over, an engine that rounds more. "
            "Compare a run with --engine transformers and one with --rows padded"
        )
