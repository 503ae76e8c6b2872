"""Seconds of each phase for one small decoder, all derived by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from run.estimate.roofline import Device, find_device, generation, scoring, seconds, training
from run.estimate.setting import Setting

# L = 3, D = 4, Q = 4, K = 2, V = 10, tied: 136 parameters in a layer and 452 in all, as counted in
# test_estimate. The critic is one layer, a norm of 4 and a head of 4 + 1.
SHAPE = SimpleNamespace(
    n_layers=3, hidden=4, intermediate=6, queries=4, keys=2, vocab=10, layer=136, model=452
)
# Two environments with 3 turns of P = 4 and R = 2 tokens, so T = 6; two epochs.
SETTING = Setting(
    critic_layers=1, token_budget=12, prompt_limit=4, response_limit=2, n_env=2, e_len=3,
    ppo_epoch=2,
)  # fmt: skip
# Times the assumed shares: 1000 operations and 600 bytes of memory in a second.
DEVICE = Device("D", 10_000, 2500, 1000)
# A layer's forward pass over 6 tokens takes 2 * 6 * 136 + 2 * 36 * 4 = 1920 operations, over the
# prompt alone 2 * 4 * 136 + 2 * 16 * 4 = 1216; the head over 2 tokens 2 * 2 * 10 * 4 = 160.


def test_generation_reads_prompts_and_then_the_weights_for_each_token():
    # prompts: 2 * 3 * 1216 = 7296 operations. A step of decoding reads 3 * 136 + 10 * 4 = 448
    # numbers of 4 bytes and 2 turns of 5 tokens (P + R / 2) with 2 * 3 * 2 numbers each:
    # 1792 + 480 = 2272 bytes, 3.79 s; its operations 2 (2 * 448 + 4 * 5 * 4 * 3) take 2.27 s
    found = generation(SHAPE, SETTING, DEVICE)
    assert found == pytest.approx(3 * (7.296 + 2 * (2272 / 600 + 0.005)))
    # with a faster memory its operations decide
    found = generation(SHAPE, SETTING, replace(DEVICE, memory=10_000))
    assert found == pytest.approx(3 * (7.296 + 2 * (2.272 + 0.005)))


def test_a_small_cache_makes_waves():
    # weights take 4 * 452 = 1808 bytes, and a turn 6 * 48 = 288; two turns need 2384
    gpu = replace(SETTING, cuda=True, engine="vllm", vllm_share=2384)
    assert generation(SHAPE, gpu, DEVICE) == generation(SHAPE, SETTING, DEVICE)
    # one at a time: 4 steps, each reads 1792 + 240 bytes
    found = generation(SHAPE, replace(gpu, vllm_share=2383), DEVICE)
    assert found == pytest.approx(3 * (7.296 + 4 * (2032 / 600 + 0.005)))
    assert generation(SHAPE, replace(gpu, vllm_share=2095), DEVICE) == float("inf")


def test_scoring_is_a_forward_pass_of_actor_critic_and_reference():
    # 6 turns: actor and critic 4 * 1920 + 160 = 7840, reference 3 * 1920 + 160 = 5920
    assert scoring(SHAPE, SETTING) == 6 * 13760
    # the engine's log-probs: two layers of the trunk and one of the critic, 5760
    capped = replace(SETTING, tis_cap=2.0)
    assert scoring(SHAPE, capped) == 6 * 11680
    free = replace(capped, reference="none", critic_layers=0, no_critic=True)
    assert scoring(SHAPE, free) == 0


def test_training_is_three_forward_passes():
    # 6 turns of 4 * 1920 * 3 + 4 * 160 operations, twice
    assert training(SHAPE, SETTING) == 2 * 6 * 23680
    again = replace(SETTING, gradient_checkpointing=True)  # 4 * 1920 * 4 + 4 * 160
    assert training(SHAPE, again) == 2 * 6 * 31360
    # the actor's matrices have no gradient: 3 (3 * 1920 - 1632) + 3 * 1920 + 3 * 160 = 18,624
    assert training(SHAPE, replace(SETTING, lora_rank=1)) == 12 * 18624


def test_frozen_layers_are_computed_once():
    # K = 1: the reference is a layer and the head, 2080; the actor's pass is whole
    top = replace(SETTING, top_layers=1)
    assert scoring(SHAPE, top) == 6 * (7840 + 2080)
    # a layer and the critic's 3 * 1920 each and the head 3 * 160, twice; two layers forward, once
    assert training(SHAPE, top) == 6 * (2 * 12000 + 2 * 1920)


def test_the_dtype_decides_how_fast_matrices_are_multiplied():
    # 1000 operations a second in fp32, 4000 in bf16
    full = seconds(SHAPE, SETTING, DEVICE)
    assert full["scoring"] == pytest.approx(6 * 13.76)
    assert full["training"] == pytest.approx(12 * 23.68)
    half = seconds(SHAPE, replace(SETTING, itemsize=2), DEVICE)
    assert half["scoring"] == pytest.approx(6 * 3.44)
    assert [*half] == ["generation", "scoring", "training"]


def test_a_gpu_is_found_by_its_name():
    names = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "another", "")
    assert [find_device(name).name for name in names] == ["H200", "A100", "H100", "H100", "H100"]
