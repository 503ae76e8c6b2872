"""The reference is the actor before the first update, to the bit."""

import pytest
import torch
from conftest import batch, make_decoder

from ppo.model.actor_critic import Reference
from ppo.model.decoder import Compute, padded
from ppo.model.lora import AdaptersOff
from ppo.model.make import build
from ppo.model.packing import packed as pack_rows
from ppo.model.packing import use_packing
from ppo.model.reference import HostReference

TURNS = [([5, 6, 7, 8], [9, 10, 11]), ([5], [6]), ([20, 21], [30, 31, 32, 33, 34, 35])]
# Qwen2 has biases of queries, keys and values; Qwen3 has norms of queries and keys
DECODERS = ["Llama", "Qwen2", "Qwen3"]


def make_trained(name: str, tie: bool):
    """A random model whose norms and biases are not 1 and 0, nor numbers that bfloat16 has."""
    lm = make_decoder(
        name, vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3,
        tie_word_embeddings=tie,
    )  # fmt: skip
    for p in lm.parameters():
        if p.dim() == 1:
            torch.nn.init.uniform_(p, 0.5, 1.5)
    return lm


@torch.no_grad()
@pytest.mark.parametrize("rank", [0, 4], ids=["whole", "lora"])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", DECODERS)
def test_actor_and_reference_agree_to_the_bit_before_the_first_update(name, tie, packed, rank):
    lm, turns = make_trained(name, tie), batch(*TURNS, temperature=0.7)
    if packed:
        use_packing(lm)
    # A model with adapters has no copy in a run. Here it has, to compare the two kinds.
    compute = Compute(torch.bfloat16, pack_rows if packed else padded)
    references = [kind(lm, compute) for kind in (Reference, HostReference)]
    options = dict(dtype=torch.bfloat16, packed=packed, lora_rank=rank)
    actor_critic = build(make_trained(name, tie), 1, **options)
    logps = actor_critic(turns).logps
    assert torch.equal(logps, AdaptersOff(actor_critic)(turns))
    for reference in references:
        assert torch.equal(reference(turns), logps)


def test_matrices_rest_in_bfloat16_and_the_rest_in_fp32():
    reference = Reference(make_trained("Qwen3", tie=False), Compute(torch.bfloat16))
    kinds = {p.dim(): p.dtype for p in reference.parameters()}
    assert kinds == {1: torch.float32, 2: torch.bfloat16}
    assert reference.lm.model.rotary_emb.inv_freq.dtype == torch.float32
