"""ActorCritic: alignment, the critic branch, gradients and chunks; the models of a command line."""

from types import SimpleNamespace

import pytest
import torch
from conftest import batch, make_decoder, make_lm
from torch.testing import assert_close

from ppo.model import decoder
from ppo.model.actor_critic import Reference
from ppo.model.lora import AdaptersOff
from ppo.model.make import build, make_model, make_reference, note_dtype
from ppo.model.reference import HostReference
from ppo.model.top_layers import TopLayersReference

PROMPT, RESPONSE = [5, 6, 7, 8], [9, 10, 11]


def test_logps_are_those_of_the_plain_model_at_the_temperature(lm):
    turns = batch((PROMPT, RESPONSE), temperature=0.7)
    scores = build(lm, 1)(turns)
    # the token at position 4 is predicted by the logits at position 3, the last prompt token
    logps = (lm(turns.ids).logits[0, 3:6] / 0.7).log_softmax(-1)
    assert_close(scores.logps, logps[range(3), RESPONSE])
    assert_close(scores.entropies, -(logps.exp() * logps).sum(-1))


@pytest.mark.parametrize("k", [0, 1, 2])
def test_values_start_at_zero_and_are_aligned_with_the_token_they_precede(lm, k):
    actor_critic = build(lm, k)
    turns = batch((PROMPT, RESPONSE))
    assert (actor_critic(turns).values == 0).all()
    torch.nn.init.normal_(actor_critic.head.weight)
    # untrained copies equal the actor's layers: values are the head on the plain model's states
    hidden = lm.model(turns.ids).last_hidden_state[0, 3:6]
    assert_close(actor_critic(turns).values, actor_critic.head(hidden).squeeze(-1))
    assert_close(actor_critic.values(turns), actor_critic(turns).values)


def test_value_before_a_token_does_not_depend_on_it(lm):
    actor_critic = build(lm, 1)
    torch.nn.init.normal_(actor_critic.head.weight)
    one = actor_critic(batch((PROMPT, [9, 10, 11]))).values
    other = actor_critic(batch((PROMPT, [9, 10, 50]))).values
    assert_close(one, other)
    changed = actor_critic(batch((PROMPT, [9, 50, 11]))).values
    assert_close(one[:2], changed[:2])
    assert (one[2] - changed[2]).abs() > 1e-3


def test_padding_and_neighbours_change_nothing(lm):
    actor_critic = build(lm, 1)
    torch.nn.init.normal_(actor_critic.head.weight)
    alone = actor_critic(batch((PROMPT, RESPONSE)))
    turns = batch((PROMPT, RESPONSE), (PROMPT * 3, RESPONSE * 2))
    together = actor_critic(turns)
    assert_close(together.logps[:3], alone.logps, atol=1e-5, rtol=0)
    assert_close(together.values[:3], alone.values, atol=1e-5, rtol=0)


def test_only_response_positions_get_a_policy_gradient(lm):
    """If a prompt token counted as a decision, its row of lm_head would get another gradient."""
    lm = make_lm(tie=False)
    scores = build(lm, 1)(batch((PROMPT, RESPONSE)))
    captured = []
    lm.lm_head.weight.register_hook(captured.append)
    scores.logps.sum().backward()
    # the softmax pushes every row down by p times a state; only sampled tokens are pulled up
    states = lm.model(torch.tensor([PROMPT + RESPONSE])).last_hidden_state[0, 3:6]
    p = lm.lm_head(states).softmax(-1)
    onehot = torch.nn.functional.one_hot(torch.tensor(RESPONSE), 260)
    assert_close(captured[0], (onehot - p).T @ states, atol=1e-4, rtol=1e-4)


def test_the_value_loss_trains_the_critic_branch_alone(lm):
    actor_critic = build(lm, 1)
    torch.nn.init.normal_(actor_critic.head.weight)
    actor_critic(batch((PROMPT, RESPONSE))).values.sum().backward()
    assert all(p.grad is None for p in lm.parameters())  # neither the trunk nor the actor's layers
    assert actor_critic.branch[0].mlp.up_proj.weight.grad.abs().sum() > 0


def test_chunks_give_the_same_numbers_and_gradients(lm, monkeypatch):
    turns = batch((PROMPT, RESPONSE), (PROMPT, RESPONSE * 3))
    results = []
    for entries in (2**25, 260 * 2):  # all at once; two tokens at a time
        monkeypatch.setattr(decoder, "LOGITS_PER_CHUNK", entries)
        lm.zero_grad(set_to_none=True)
        scores = build(lm, 0)(turns, entropy_grad=True)
        (scores.logps + scores.entropies).sum().backward()
        results.append((scores.logps.detach(), [p.grad.clone() for p in lm.parameters()]))
    assert_close(results[0], results[1], atol=1e-5, rtol=1e-4)


def test_the_reference_does_not_follow_the_actor(lm):
    turns = batch((PROMPT, RESPONSE))
    reference = Reference(lm)
    before = reference(turns)
    with torch.no_grad():
        lm.model.embed_tokens.weight.add_(1.0)
    assert_close(reference(turns), before)
    assert not any(p.requires_grad for p in reference.parameters())


SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=8,
)  # fmt: skip


@pytest.mark.parametrize("critic_layers", [None, 0, 1, 2])
@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3"])
def test_the_top_layers_mlp_at_the_response_alone_changes_nothing(name, critic_layers, monkeypatch):
    critic = critic_layers is not None
    turns = batch((PROMPT, RESPONSE), (PROMPT * 3, RESPONSE * 2))
    results, seen = [], []
    for parts in (decoder.PARTS, set()):  # of no layer: all of it runs at every token
        monkeypatch.setattr(decoder, "PARTS", parts)
        lm = make_decoder(name, **SIZES, initializer_range=0.3)
        actor_critic = build(lm, critic_layers)
        if critic:
            torch.nn.init.ones_(actor_critic.head.weight)
        lm.model.layers[1].mlp.register_forward_hook(lambda mlp, x, y: seen.append(y.shape[:-1]))
        scores = actor_critic(turns)
        values = scores.values if critic else torch.zeros(9)
        (scores.logps + values).square().sum().backward()
        assert_close(Reference(lm)(turns), scores.logps)
        gradients = [p.grad for p in actor_critic.parameters()]
        results.append((scores.logps.detach(), values.detach(), gradients))
    assert_close(results[0], results[1], atol=1e-4, rtol=1e-4)
    # the actor's, then the reference's: 3 + 6 response tokens, or two rows of 18 tokens. With a
    # plain head as critic the actor's layers are all trunk.
    whole = [(2, 18)] * 2
    assert seen == ([(2, 18), (1, 9)] if critic_layers == 0 else [(1, 9)] * 2) + whole


def test_turns_without_a_response_give_gradients_of_zero():
    """A rank that has run out of turns takes part with such a dummy."""
    actor_critic = build(make_lm(), 1)
    scores = actor_critic(batch(([5, 6], [])))
    (scores.logps.sum() + scores.values.sum()).backward()
    trained = [*actor_critic.lm.model.layers[1].parameters(), *actor_critic.branch.parameters()]
    assert all(p.grad is not None and not p.grad.any() for p in trained)


def test_a_mixture_of_experts_works_too():
    turns = batch((PROMPT, RESPONSE))
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    lm = make_decoder("Qwen3Moe", **SIZES, **experts)
    logps = lm(turns.ids).logits[0, 3:6].log_softmax(-1)
    assert_close(build(lm, 1)(turns).logps, logps[range(3), RESPONSE])


def test_a_layer_with_other_parts_runs_whole():
    turns = batch((PROMPT, RESPONSE))
    lm = make_decoder("Olmo2", **SIZES, pad_token_id=0)  # has a norm behind the MLP
    logps = lm(turns.ids).logits[0, 3:6].log_softmax(-1)
    assert_close(build(lm, 1)(turns).logps, logps[range(3), RESPONSE])


def models_of(model_dir: str, device: str = "cpu", **changes):
    flags = dict(
        model=model_dir, dtype="auto", prompt_limit=64, response_limit=8, rows="auto",
        critic_layers=1, gradient_checkpointing=False,
        lora_rank=0, top_layers=0, reference="device",
        template_kwargs={}, no_critic=False, zero_stage=0,
    )  # fmt: skip
    flags = SimpleNamespace(**(flags | changes))
    actor_critic, tokenizer, ends = make_model(flags, flags, device, seed=1)
    return actor_critic, make_reference(flags, actor_critic), tokenizer, ends


def test_the_models_of_a_command_line(model_dir):
    actor_critic, reference, tokenizer, ends = models_of(model_dir)
    assert (actor_critic.n_trunk, ends) == (1, {0})
    assert (actor_critic.dtype, reference.compute.dtype) == (torch.float32,) * 2
    assert type(reference) is Reference
    assert len(tokenizer("ab")["input_ids"]) == 2
    turns = batch((PROMPT, RESPONSE))
    assert_close(reference(turns), actor_critic(turns).logps)
    assert isinstance(models_of(model_dir, reference="host")[1], HostReference)
    assert isinstance(models_of(model_dir, lora_rank=2)[1], AdaptersOff)
    assert isinstance(models_of(model_dir, top_layers=1)[1], TopLayersReference)


NATIVE = "note: --dtype bfloat16 is faster: this processor has it"
EMULATES = "because this processor only emulates bfloat16"


@pytest.mark.parametrize(
    ("dtype", "known", "said"),
    [
        ("auto", {}, [f"note: float32 is chosen, {EMULATES}"]),
        ("bfloat16", {}, [f"note: --dtype float32 is faster, {EMULATES}"]),
        ("float32", {}, []),
        ("auto", {"avx512_bf16": True}, [NATIVE]),
        ("float32", {"amx_bf16": True}, [NATIVE]),
        ("bfloat16", {"amx_bf16": True}, []),
        ("auto", {"architecture": "aarch64"}, []),
    ],
)
def test_the_faster_dtype_is_named(dtype, known, said, monkeypatch):
    processor = {"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False}  # AVX2
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor | known, raising=False)
    lines = []
    monkeypatch.setattr("ppo.model.make.print_status", lines.append)
    note_dtype(dtype)
    assert lines == said


def test_packed_rows_need_bfloat16_on_a_gpu(model_dir, monkeypatch):
    # tests have no GPU to load a model onto
    monkeypatch.setattr("ppo.model.make.load_lm", lambda *args: (None, None, None))
    with pytest.raises(ValueError, match="--rows packed needs --dtype bfloat16 on a GPU"):
        models_of(model_dir, device="cuda:0", dtype="float32", rows="packed")


def test_each_turn_is_trained_at_its_own_temperature():
    # log pi at temperature T is the log-softmax of the logits / T, turn by turn
    actor_critic = build(make_lm(std=0.1), 1)
    turns = batch(([5, 6], [7, 8]), ([9], [10, 11, 12]))
    mask = turns.response_mask
    each = torch.tensor([0.5, 2.0]).repeat_interleave(mask.sum(-1))  # (R,)
    logits = actor_critic.lm(turns.ids).logits[:, :-1][mask[:, 1:]]  # (R, V)
    expected = (logits / each.unsqueeze(-1)).log_softmax(-1)
    expected = expected.gather(-1, turns.tokens.unsqueeze(-1)).squeeze(-1)
    turns.temperature = each
    assert_close(actor_critic(turns).logps, expected)
    assert_close(Reference(actor_critic.lm)(turns), expected)
