"""The last part of the test of a model: what is exported computes the same when it is loaded again.

The export of a small model is tried before the first update. That of a large one would take
minutes and its size of the disk, so a line says that it has not been tried.
"""

import tempfile
from pathlib import Path
from time import perf_counter

import torch
from torch import distributed
from transformers import AutoModelForCausalLM

from common.cli import print_status
from common.errors import lacks_memory, reason_of
from common.plugins import UserError
from ppo.model.acceptance import SLOW, allowed, alone, differ, test_turns
from ppo.model.decoder import precision

LARGE = 2**30  # bytes of an export that is not tried


@torch.no_grad()
def try_export(actor_critic, model: str) -> None:
    """Export the actor, load it and compare. One of several ranks does it, before they share it.

    model: the beginning of an error; UserError: it cannot be loaded, or it is another model
    """
    if distributed.is_initialized() and distributed.get_rank() > 0:
        return  # rank 0 writes the exports of a run
    lm, dtype = actor_critic.lm, actor_critic.dtype
    size = sum(p.numel() for p in lm.parameters()) * dtype.itemsize
    if size > LARGE:
        print_status(f"the export of this model is not tried: it has {size / 1e9:.1f} GB")
        return
    began = perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            actor_critic.export(Path(folder), keep=True)
            # In the dtype of the weights: frozen ones are in bfloat16, and so is all that they add.
            stored = lm.get_input_embeddings().weight.dtype
            again, report = AutoModelForCausalLM.from_pretrained(
                folder, dtype=stored, output_loading_info=True, trust_remote_code=False
            )
        if wrong := sorted(report["missing_keys"]) + sorted(report["unexpected_keys"]):
            raise ValueError(f"{len(wrong)} weights are lost or have other names ({wrong[0]}, ...)")
        turns = test_turns(lm, 0)
        again = again.to(lm.device).eval()
        with precision(lm.device, dtype):
            logits, logits_again = (alone(each, *turns, 1.0) for each in (lm, again))
        with precision(lm.device, stored):
            exact = alone(lm, *turns, 1.0)
        gap = differ(logits_again, logits)
        if not gap <= allowed(dtype, logits, exact):
            raise ValueError(f"logits differ by {gap:.2g} where the largest is 100")
    except Exception as error:  # libraries fail in many ways at models that are not theirs
        if lacks_memory(error):
            raise
        problem = f"what it exports is not what it is: {reason_of(error)}"
        raise UserError(f"{model}: {problem}") from error
    if (seconds := perf_counter() - began) > SLOW:
        print_status(f"the test of the export took {seconds:.0f} s")
