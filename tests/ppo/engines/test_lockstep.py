"""The transformers engine: what it samples, its log-probs, its independence of the batch."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from conftest import batch, make_lm, make_prompt
from tokenizers import AddedToken, Tokenizer, decoders, models
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from common.errors import RunError
from ppo.engines.choose import by_speed, make_engine
from ppo.engines.contract import Response
from ppo.engines.lockstep import TransformersEngine, sample
from ppo.engines.measured import MeasuredEngine
from ppo.engines.text import action_token, hidden_tokens, split_text
from ppo.model.make import build

PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [15], [16, 17, 18, 19]]


def engine_on(lm, tokenizer, ends=(0,), limit=12, temperature=1.0, slots=1):
    engine = TransformersEngine(tokenizer, set(ends), limit, temperature, max_num_seqs=slots)
    actor_critic = build(lm, 0)
    engine.push_weights(actor_critic)
    return engine, actor_critic


def generate(engine, prompts, slots=None, seed=0):
    for slot, ids in zip(slots or range(len(prompts)), prompts, strict=True):
        engine.submit(slot, make_prompt(ids), seed=(seed, slot))
    responses = dict(engine.step())
    assert engine.idle
    return responses


def test_greedy_equals_plain_generate(lm, tokenizer):
    engine, _ = engine_on(lm, tokenizer, temperature=0)
    responses = generate(engine, PROMPTS)
    for slot, ids in enumerate(PROMPTS):
        alone = lm.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, pad_token_id=0)
        assert responses[slot].ids == alone[0, len(ids) :].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logps_equal_the_trainers(lm, tokenizer, temperature):
    engine, actor_critic = engine_on(lm, tokenizer, temperature=temperature)
    for response in generate(engine, PROMPTS).values():
        turn = batch((response.prompt.ids, response.ids), temperature=temperature)
        logps = actor_critic(turn).logps
        assert_close(torch.tensor(response.logps), logps, atol=1e-4, rtol=0)


STATE = dict(
    linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8,
    linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("config", "model", "more"),
    [
        ("Qwen3_5Text", "Qwen3_5", STATE),
        ("Lfm2", "Lfm2", dict(layer_types=["conv", "full_attention"])),
    ],
)
def test_a_state_does_not_begin_in_the_padding(config, model, more, tokenizer):
    torch.manual_seed(0)
    settings = getattr(transformers, f"{config}Config")(
        vocab_size=260, hidden_size=32, intermediate_size=32, num_hidden_layers=2, head_dim=16,
        num_attention_heads=2, num_key_value_heads=2, initializer_range=0.3, eos_token_id=0,
        pad_token_id=0, bos_token_id=None, **more,
    )  # fmt: skip
    lm = getattr(transformers, f"{model}ForCausalLM")(settings).eval()
    engine, actor_critic = engine_on(lm, tokenizer)
    for response in generate(engine, PROMPTS).values():
        logps = actor_critic(batch((response.prompt.ids, response.ids))).logps
        assert_close(torch.tensor(response.logps), logps, atol=1e-4, rtol=0)


def test_a_response_does_not_depend_on_its_batch(lm, tokenizer):
    engine, _ = engine_on(lm, tokenizer)
    together = generate(engine, PROMPTS, seed=6)
    for slot in (2, 0, 3, 1):
        assert generate(engine, [PROMPTS[slot]], [slot], seed=6)[slot].ids == together[slot].ids
    assert generate(engine, PROMPTS, seed=5)[1].ids != together[1].ids


def test_every_number_of_a_seed_counts(lm, tokenizer):
    engine, _ = engine_on(lm, tokenizer)
    seeds = [(4, 0, 0), (4, 0, 1), (4, 1, 0), (5, 0, 0)]
    sampled = []
    for seed in seeds:
        engine.submit(0, make_prompt(PROMPTS[0]), seed=seed)
        sampled.append(tuple(dict(engine.step())[0].ids))
    assert len(set(sampled)) == len(seeds)


def test_the_end_is_kept_and_the_limit_is_flagged(lm, tokenizer):
    # half of the vocabulary ends a response, so that most end early and some rows outlive others
    engine, _ = engine_on(lm, tokenizer, ends=range(130), limit=6)
    responses = generate(engine, PROMPTS * 8).values()
    assert {len(r.ids) for r in responses} >= {1, 2, 3}
    for response in responses:
        assert len(response.ids) <= 6
        assert response.truncated == (response.ids[-1] >= 130)
        assert all(token >= 130 for token in response.ids[:-1])
        assert len(response.ids) == len(response.logps) == len(response.pieces)


def test_push_takes_the_new_weights(lm, tokenizer):
    engine, _ = engine_on(lm, tokenizer, temperature=0)
    before = generate(engine, PROMPTS)
    other = make_lm(seed=1)
    engine.push_weights(build(other, 0))
    after = generate(engine, PROMPTS)
    assert any(before[i].ids != after[i].ids for i in before)


def test_sampling_follows_the_distribution():
    # p = .1, .2, .7 over 20,000 draws; the standard error of a share is at most .0036
    logits = torch.tensor([0.1, 0.2, 0.7]).log().repeat(20_000, 1)
    rng = np.random.default_rng(0)
    tokens, logps = sample(logits, torch.ones(20_000), [rng] * 20_000)
    shares = torch.bincount(tokens, minlength=3) / 20_000
    assert_close(shares, torch.tensor([0.1, 0.2, 0.7]), atol=0.012, rtol=0)
    assert_close(logps, torch.tensor([0.1, 0.2, 0.7]).log()[tokens])
    # at temperature .5 the odds are squared: .01, .04, .49 over .54
    cold, _ = sample(logits, torch.full((20_000,), 0.5), [rng] * 20_000)
    shares = torch.bincount(cold, minlength=3) / 20_000
    assert_close(shares, torch.tensor([0.01, 0.04, 0.49]) / 0.54, atol=0.012, rtol=0)


def test_the_choice_of_an_engine(tokenizer, monkeypatch):
    def make(name, sharded=False, calls="refuse"):
        generation = SimpleNamespace(
            engine=name, model="models/tiny", response_limit=7, temperature=0.5, prompt_limit=64,
            endpoint_sampling=calls, gpu_memory_utilization=0.3,
        )  # fmt: skip
        options = dict(slots=4, dtype=torch.float32, seed=0, sharded=sharded)
        return make_engine(generation, tokenizer, {0}, **options)

    monkeypatch.setitem(sys.modules, "vllm", None)  # as if it were not installed
    for module in [name for name in sys.modules if name.startswith("ppo.engines.vllm")]:
        monkeypatch.delitem(sys.modules, module)  # another test may have loaded them
    for name in ("transformers", "auto"):
        engine = make(name)
        assert isinstance(engine.inner.inner, TransformersEngine)
        assert (engine.response_limit, engine.temperature, engine.ends) == (7, 0.5, {0})
    with pytest.raises(ValueError, match="--engine vllm cannot be imported: .*vllm"):
        make("vllm")
    with pytest.raises(ValueError, match="--zero-stage 3 needs --engine vllm"):
        make("transformers", sharded=True)
    with pytest.raises(ValueError, match="--endpoint-sampling untrained needs --engine vllm"):
        make("transformers", calls="untrained")


@pytest.mark.parametrize(
    ("hidden", "gpu", "slow_envs", "calls", "first"),
    [(64, False, False, "run", "transformers"), (128, False, False, "run", "vllm"),
     (64, True, False, "run", "vllm"), (64, False, True, "run", "vllm"),
     (64, False, False, "untrained", "vllm")],
)  # fmt: skip
def test_auto_tries_the_faster_engine_first(
    tmp_path, monkeypatch, hidden, gpu, slow_envs, calls, first
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    (tmp_path / "config.json").write_text(f'{{"hidden_size": {hidden}}}')
    generation = SimpleNamespace(model=str(tmp_path), endpoint_sampling=calls)
    names = by_speed(generation, slow_envs)
    assert sorted(names) == ["transformers", "vllm"] and names[0] == first


def test_the_pieces_of_a_text_are_what_each_token_adds(tokenizer):
    text = "a ↯ is é"  # of three bytes and of two, which are a token each
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == 11
    assert split_text(tokenizer.decode, ids) == [
        "a", " ", "", "", "↯", " ", "i", "s", " ", "", "é"]  # fmt: skip
    # The response limit cuts a character after its first byte or, in the arrow, its second one.
    cut = ["a", " ", "", "", "↯", " ", "i", "s", " ", "\N{REPLACEMENT CHARACTER}"]
    assert split_text(tokenizer.decode, ids[:-1]) == cut
    for end in range(1, len(ids) + 1):
        assert "".join(split_text(tokenizer.decode, ids[:end])) == tokenizer.decode(ids[:end])


def test_pieces_where_tokens_lose_their_space_alone():
    words = {"▁go": 0, "▁left": 1, "▁ACTION": 2, "<end>": 3}
    core = Tokenizer(models.WordLevel(words, unk_token="<end>"))
    core.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>")
    assert tokenizer.decode([1]) == "left"  # so lengths of single tokens would add up to too little
    engine = TransformersEngine(tokenizer, {3}, 8, 1.0)
    response = engine.response(make_prompt([1]), [0, 1, 2, 1, 3], [-1.0] * 5)
    assert response.text == "go left ACTION left"
    assert response.pieces == ["go", " left", " ACTION", " left", "<end>"]
    assert not response.truncated


def test_stats(lm, tokenizer, monkeypatch):
    # steps from 1 to 2 s and from 4 to 6 s: 3 s of work, in which 4 + 3 x 7 - 1 = 24 prompt tokens
    # were read: 8 per second. In the first one prompt was under way, in the second three equally
    # long responses: of 4 slots (1 s x 1 + 2 s x 3) / 3 s = 7 / 3 were busy.
    engine = MeasuredEngine(engine_on(lm, tokenizer, ends=(), limit=5, slots=4)[0])
    clock = iter([1.0, 2.0, 4.0, 6.0, 9.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    generate(engine, [PROMPTS[0]])
    generate(engine, [PROMPTS[1]] * 3)
    assert engine.stats() == {
        "time/engine_occupancy": pytest.approx(7 / 3 / 4),
        "engine/prefix_hits": 0.0,
        "time/prefill_rate": 8.0,
        "time/decode_rate": pytest.approx((5 + 3 * 5) / 3),
        "time/engine": 3.0,
    }
    assert engine.stats() == {}


class Silent:
    """An engine that answers with what it is told to."""

    def __init__(self, ids, logps):
        self.answer, self.idle, self.max_num_seqs = (ids, logps), False, 1

    def submit(self, slot, prompt, seed):
        self.prompt = prompt

    def step(self):
        ids, logps = self.answer
        return [(0, Response(self.prompt, ids, logps, "x", ["x"] * len(ids), False))]


@pytest.mark.parametrize(("ids", "logps"), [([], []), ([1, 2], [-1.0])])
def test_a_response_that_cannot_be_trained_is_refused(ids, logps):
    engine = MeasuredEngine(Silent(ids, logps))
    engine.submit(0, make_prompt([1]), seed=(0,))
    about = f"the engine Silent returned a response of {len(ids)} ids and {len(logps)} log-probs"
    with pytest.raises(RunError, match=about):
        engine.step()


def test_an_engine_of_ours_names_itself_where_it_sampled_nothing(lm, tokenizer):
    engine, _ = engine_on(lm, tokenizer)
    with pytest.raises(AssertionError, match="TransformersEngine sampled a response without ids"):
        engine.response(make_prompt([1]), [], [])


def test_a_slot_is_busy_until_its_response_is_complete(lm, tokenizer):
    # half of the vocabulary ends a response
    engine = MeasuredEngine(engine_on(lm, tokenizer, ends=range(130), limit=6, slots=32)[0])
    responses = generate(engine, PROMPTS * 8).values()
    lengths = [len(r.ids) for r in responses]
    busy = [sum(length > token for length in lengths) for token in range(max(lengths))]
    assert engine.stats()["time/engine_occupancy"] == pytest.approx(sum(busy) / len(busy) / 32)
    assert busy[0] == 32 > busy[-1]


CALLS = (
    "{% for m in messages %}<user>{{ m.content }}{% for call in m.tool_calls or [] %}"
    "<call>{{ call.function.name }}</call>{% endfor %}<end>{% endfor %}"
)


def test_the_text_keeps_the_special_tokens_of_calls_and_of_reasoning():
    names = ["<end>", "<user>", "<call>", "</call>", "<think>", "</think>"]
    backend = Tokenizer(models.WordLevel({"?": 0, "a": 1, "b": 2, "f": 3}, unk_token="?"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(name, special=True) for name in names])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    tokenizer.chat_template = CALLS
    end, user, call, call_end, think, think_end = tokenizer.convert_tokens_to_ids(names)
    engine = TransformersEngine(tokenizer, {end}, 20, 1.0)
    engine.hidden = hidden_tokens(tokenizer)
    ids = [think, 1, think_end, user, call, 2, call_end, end]
    response = engine.response(make_prompt([1]), ids, [0.0] * 8)
    # "<user>" would begin a message of a user's in the next prompt.
    assert response.text == "<think>a</think><call>b</call>"
    assert "".join(response.pieces[:-1]) == response.text
    assert response.ids == ids
    begun = engine.response(make_prompt([1], opened="<think>\n"), ids[1:], [0.0] * 7)
    assert begun.text == "<think>\na</think><call>b</call>"
    assert "".join(begun.pieces[:-1]) == begun.text
    # the call, after a, </think>, <user>
    assert action_token(begun.pieces, begun.text, len("<think>\na</think>")) == 3
