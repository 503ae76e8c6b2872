"""Seconds of each phase for one small decoder, all derived by hand; the page of large models."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from benchmarks import on_paper
from run.fit.estimate import Setting
from run.fit.roofline import Device, find_device, generation, push, scoring, training

# L = 3, D = 4, Q = 4, K = 2, V = 10, tied: 136 parameters in a layer and 452 in all, as counted in
# test_estimate. The critic is one layer, a norm of 4 and a head of 4 + 1: 145, so 597 are trained.
SHAPE = SimpleNamespace(
    n_layers=3, hidden=4, intermediate=6, queries=4, keys=2, vocab=10, layer=136, model=452
)
# Two environments with 3 turns of P = 4 and R = 2 tokens, so T = 6. The 6 turns make two steps in
# each of two epochs.
SETTING = Setting(
    critic_layers=1, token_budget=12, prompt_limit=4, response_limit=2, n_env=2, e_len=3,
    minibatch=3, ppo_epoch=2,
)  # fmt: skip
# Times the assumed shares: 1000 operations, 600 bytes of memory, 700 and 350 over links, 100 to the
# host and 70 of its memory in a second.
DEVICE = Device("D", 10_000, 2500, 1000, 1000, 500, 200, 140)
# A layer's forward pass over 6 tokens takes 2 * 6 * 136 + 2 * 36 * 4 = 1920 operations, over the
# prompt alone 2 * 4 * 136 + 2 * 16 * 4 = 1216; the head over 2 tokens 2 * 2 * 10 * 4 = 160.
RANKS = replace(SETTING, ranks=4, minibatch=12)  # each rank has 6 turns, 3 in a step


def close(parts: dict, **expected):
    """Compare parts with seconds; those that are not named are 0."""
    assert {name: part for name, part in parts.items() if part} == pytest.approx(expected)


def test_generation_reads_prompts_and_then_the_weights_for_each_token():
    # prompts: 2 * 3 * 1216 = 7296 operations. A step of decoding reads 3 * 136 + 10 * 4 = 448
    # numbers of 4 bytes and 2 turns of 5 tokens (P + R / 2) with 2 * 3 * 2 numbers each:
    # 1792 + 480 = 2272 bytes, 3.79 s; its operations 2 (2 * 448 + 4 * 5 * 4 * 3) take 2.27 s
    close(
        generation(SHAPE, SETTING, DEVICE),
        arithmetic=3 * 7.296, memory=3 * 2 * 2272 / 600, steps=3 * 2 * 0.005,
    )  # fmt: skip
    # with a faster memory its operations decide
    parts = generation(SHAPE, SETTING, replace(DEVICE, memory=10_000))
    close(parts, arithmetic=3 * (7.296 + 2 * 2.272), steps=0.03)


def test_a_small_cache_makes_waves():
    # weights take 4 * 452 = 1808 bytes, and a turn 6 * 48 = 288; two turns need 2384
    gpu = replace(SETTING, cuda=True, engine="vllm", vllm_share=2384)
    assert generation(SHAPE, gpu, DEVICE) == generation(SHAPE, SETTING, DEVICE)
    # one at a time: 4 steps, each reads 1792 + 240 bytes
    parts = generation(SHAPE, replace(gpu, vllm_share=2383), DEVICE)
    close(parts, arithmetic=3 * 7.296, memory=3 * 4 * 2032 / 600, steps=3 * 4 * 0.005)
    close(generation(SHAPE, replace(gpu, vllm_share=2095), DEVICE), memory=float("inf"))


def test_scoring_is_a_forward_pass_of_actor_critic_and_reference():
    # 6 turns: actor and critic 4 * 1920 + 160 = 7840, reference 3 * 1920 + 160 = 5920
    close(scoring(SHAPE, SETTING, DEVICE), arithmetic=6 * 13.76)
    # the engine's log-probs: two layers of the trunk and one of the critic, 5760
    capped = replace(SETTING, tis_cap=2.0)
    close(scoring(SHAPE, capped, DEVICE), arithmetic=6 * 11.68)
    free = replace(capped, reference="none", critic_layers=0, no_critic=True)
    close(scoring(SHAPE, free, DEVICE))
    # the reference comes from the host: 4 * 452 bytes
    away = replace(SETTING, cuda=True, reference="host")
    close(scoring(SHAPE, away, DEVICE), arithmetic=6 * 13.76, host=18.08)


def test_training_is_three_forward_passes_and_the_steps_of_adamw():
    # 6 turns of 4 * 1920 * 3 + 4 * 160 operations, twice; 4 steps of 28 bytes for each of 597
    steps = 4 * 28 * 597 / 600
    close(training(SHAPE, SETTING, DEVICE), arithmetic=2 * 6 * 23.68, memory=steps)
    again = replace(SETTING, gradient_checkpointing=True)  # 4 * 1920 * 4 + 4 * 160
    close(training(SHAPE, again, DEVICE), arithmetic=2 * 6 * 31.36, memory=steps)
    # the actor's matrices have no gradient: 3 (3 * 1920 - 1632) + 3 * 1920 + 3 * 160 = 18,624;
    # adapters 3 (7 * 4 + 2 * 4 + 2 * 2 + 3 * 6) = 174 numbers, with the critic 319
    lora = replace(SETTING, lora_rank=1)
    close(training(SHAPE, lora, DEVICE), arithmetic=12 * 18.624, memory=4 * 28 * 319 / 600)


def test_an_offloaded_step_is_the_hosts():
    # 4 steps of 597 numbers: 8 bytes over the link at 100, 28 bytes of the host's memory at 70
    setting = replace(SETTING, cuda=True, zero_stage=1, offload_optimizer=True)
    close(training(SHAPE, setting, DEVICE), arithmetic=284.16, host=4 * 597 * (0.08 + 0.4))


@pytest.mark.parametrize(
    ("stage", "copies"),
    [
        # 2 epochs of 2 steps, each of 2 micro-batches (2 turns fit the budget of 12 tokens)
        (0, 2 * 2 * 2),  # gradients are summed and handed back
        (1, 2 * 2 * 2),  # gradients are summed and sharded, and parameters gathered
        (2, 2 * (4 + 2)),  # the former after each micro-batch
        (3, 2 * 4 * 3),  # parameters are gathered twice and gradients sharded
    ],
)
def test_what_ranks_exchange(stage, copies):
    # each rank receives 3 / 4 of 4 * 597 bytes
    parts = training(SHAPE, replace(RANKS, zero_stage=stage), DEVICE)
    assert parts["links"] == pytest.approx(copies * 0.75 * 2388 / 700)
    # 16 ranks are more than a machine, whose links are slower
    setting = replace(RANKS, zero_stage=stage, ranks=16, minibatch=48)
    parts = training(SHAPE, setting, DEVICE)
    assert parts["links"] == pytest.approx(copies * 15 / 16 * 2388 / 350)


def test_stage_3_gathers_parameters_in_each_forward_pass_and_push():
    one = 0.75 * 2388 / 700
    setting = replace(RANKS, zero_stage=3)
    close(scoring(SHAPE, setting, DEVICE), arithmetic=6 * 13.76, links=4 * one)
    # 4 + 3 * 4 bytes for each of 452 parameters
    close(push(SHAPE, setting, DEVICE), memory=16 * 452 / 600, links=one)
    shared = replace(setting, reference="sharded")  # and 4 * 452 bytes of the reference
    parts = scoring(SHAPE, shared, DEVICE)
    assert parts["links"] == pytest.approx(4 * 0.75 * (2388 + 1808) / 700)


def test_a_gpu_is_found_by_its_name():
    names = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "another", "")
    assert [find_device(name).name for name in names] == ["H200", "A100", "H100", "H100", "H100"]


def test_the_page_has_the_tables_that_the_command_prints():
    page, made = on_paper.PAGE.read_text(encoding="utf-8"), on_paper.tables()
    assert all(f"<!-- table: {name} -->\n\n{text}\n" in page for name, text in made.items()), (
        "run `python -m benchmarks.on_paper --write`"
    )
    assert on_paper.filled(page, made) == page


def test_the_models_of_the_page_have_the_sizes_that_their_makers_say():
    sizes = [on_paper.shape_of(name).model for name in ("0.5B", "7B", "72B")]
    assert sizes == [494_032_768, 7_615_616_512, 72_706_203_648]
