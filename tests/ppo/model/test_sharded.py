"""Two ranks load a model in shards: what they compute, and the memory that loading takes."""

import json

import pytest
import torch
from real_runs import run
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

from benchmarks.memory import MALLOC
from recipes import TINY


def ended(out, stage: int, *models) -> dict:
    """Return what `sharded_loading.py` writes."""
    script = ["tests/ppo/model/sharded_loading.py", out / f"{stage}.json", stage, *models]
    process = run(script, ranks=2, at_start=tuple(MALLOC.items()))
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(script[1].read_text())


def write_model(folder) -> int:
    """Write a random model of 40 layers, in bf16 as models are. Returns its bytes in fp32."""
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=1024, num_hidden_layers=40,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return 4 * sum(p.numel() for p in lm.parameters())


def test_shards_learn_what_a_whole_model_does_and_no_rank_loads_all_of_it(tmp_path):
    size = write_model(tmp_path / "large")
    shards, whole = ended(tmp_path, 3, tmp_path / "large"), ended(tmp_path, 0)
    for ours, theirs in zip(shards["figures"], whole["figures"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert shards["weights"] == pytest.approx(whole["weights"], rel=1e-6)
    exported = [AutoModelForCausalLM.from_pretrained(tmp_path / f"model-{s}") for s in (3, 0)]
    assert_close(exported[0].state_dict(), exported[1].state_dict(), atol=1e-6, rtol=0)
    # each rank holds half of the actor, and one of 40 layers for the critic, then half of the
    # reference, too
    assert max(shards["model"]) < 0.75 * size and max(shards["both"]) < 1.25 * size
