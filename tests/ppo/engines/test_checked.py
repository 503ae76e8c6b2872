"""The check of an engine at its first push: it computes what the trainer does, or is refused."""

import pytest
import torch
from conftest import make_decoder, make_lm
from transformers import Llama4ForCausalLM, Llama4TextConfig

from common.errors import RunError
from ppo.engines import checked
from ppo.engines.checked import CheckedEngine
from ppo.engines.lockstep import TransformersEngine
from ppo.engines.measured import MeasuredEngine
from ppo.model.make import build

WINDOW = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, sliding_window=6,
    num_attention_heads=2, num_key_value_heads=2, initializer_range=0.3,
)  # fmt: skip


class Stale(TransformersEngine):
    """Samples with the first weights that were ever pushed to any engine of this kind."""

    def push_weights(self, actor_critic):
        super().push_weights(build(make_lm(seed=1), 0))


class Broken(TransformersEngine):
    """Has no kernel for the model."""

    def step(self):
        raise NotImplementedError("no kernel")


def checked_engine(kind, tokenizer, temperature=1.0):
    engine = MeasuredEngine(kind(tokenizer, {0}, 8, temperature, max_num_seqs=1))
    return CheckedEngine(engine, prompt_limit=32)


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_an_engine_that_computes_what_the_trainer_does_is_taken(tokenizer, temperature):
    engine = checked_engine(TransformersEngine, tokenizer, temperature)
    actor_critic, state = build(make_lm(), 0), torch.get_rng_state()
    engine.push_weights(actor_critic)
    assert engine.idle and engine.stats() == {}  # the check leaves nothing behind
    assert torch.equal(torch.get_rng_state(), state)
    assert engine.name == "TransformersEngine"


def test_an_engine_with_other_weights_is_refused(tokenizer):
    with pytest.raises(
        RunError, match=r"^Stale does not compute .* of 24 tokens .*--engine transformers$"
    ):
        checked_engine(Stale, tokenizer).push_weights(build(make_lm(), 0))


def test_the_prompts_of_the_check_reach_beyond_a_window(tokenizer, monkeypatch):
    # prompts of 32 tokens and responses of 8 pass a window of 6 tokens by 16: 22 tokens, the last
    # 6 of which are asked; the second turn would fit into the window, but has 2 tokens before its 6
    seen, real = [], checked.token_gaps

    def noted(actor_critic, prompt_ids, *answer):
        seen.append(prompt_ids)
        return real(actor_critic, prompt_ids, *answer)

    monkeypatch.setattr(checked, "token_gaps", noted)
    engine = checked_engine(TransformersEngine, tokenizer)
    engine.push_weights(build(make_decoder("Mistral", **WINDOW), 0, tokens=40))
    assert [len(ids) for ids in seen] == [16, 2]
    engine.push_weights(build(make_decoder("Mistral", **WINDOW), 0, tokens=40))
    assert len(seen) == 2  # the check is of the first push alone


def test_prompts_of_the_check_are_answered_together(tokenizer):
    # transformers 5.19 counts the positions of Llama 4's factor of long turns from the first token
    # of padding; alone, each prompt would agree
    torch.manual_seed(0)
    config = Llama4TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, intermediate_size_mlp=32,
        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        num_local_experts=2, initializer_range=0.3, no_rope_layers=[1, 0], floor_scale=2,
        attn_scale=0.5,
    )  # fmt: skip
    lm = Llama4ForCausalLM(config).eval()
    with pytest.raises(RunError, match="TransformersEngine does not compute what the trainer does"):
        checked_engine(TransformersEngine, tokenizer).push_weights(build(lm, 0, tokens=40))


def test_an_engine_that_fails_is_refused_in_one_line(tokenizer):
    line = r"^Broken fails at a prompt \(NotImplementedError: no kernel\); try --engine trans.*$"
    with pytest.raises(RunError, match=line):
        checked_engine(Broken, tokenizer).push_weights(build(make_lm(), 0))
