"""`turnwise fit`: the table, the advice and the exit code; nothing is loaded or written."""

import json
import os
import re
import shutil
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, Qwen2Config

import main
from common import host_memory
from fit import main as fit
from run.estimate import advice
from run.estimate.memory import loading, totals
from run.estimate.setting import Setting
from run.estimate.shape import Shape

SMALL = "--env-name toy --n-env 2 --e-len 2 --minibatch 4 --engine transformers"
QWEN_CONFIG = Qwen2Config(
    vocab_size=152064, hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
    num_attention_heads=28, num_key_value_heads=4,
)  # fmt: skip
with torch.device("meta"):  # Qwen2.5-7B: a layer has 233,057,792 parameters, all 7,615,616,512
    QWEN = Shape(AutoModelForCausalLM.from_config(QWEN_CONFIG))
GPU = Setting(
    critic_layers=2, token_budget=4096, prompt_limit=1024, response_limit=512, n_env=32, itemsize=2,
    engine="vllm", cuda=True, vllm_share=24 * 10**9,
)  # fmt: skip
ONE_LAYER = Qwen2Config(
    hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
    intermediate_size=8,
)  # fmt: skip
TERMS = ["parameters", "gradients", "optimizer", "reference", "batch: tensors", "batch: lists"]
TERMS += ["engine", "activations", "step buffers"]
HERE = 80 * 10**9, 500 * 10**9


@pytest.fixture
def here(tmp_path, monkeypatch, model_dir):
    """Make ./m with a config.json, without weights or a tokenizer."""
    (tmp_path / "m").mkdir()
    shutil.copy(f"{model_dir}/config.json", tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(flags: str = "") -> int:
    return fit([*SMALL.split(), "--model", "./m", *flags.split()])


def test_a_run_that_fits_is_a_table_and_nothing_else(here, capsys):
    before = sorted(here.rglob("*"))
    assert run("--run-dir r") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["GB", "per", "rank", "generate", "score", "backward", "step"]
    assert [line[:14].strip() for line in lines[1:11]] == [*TERMS, "total"]
    assert lines[11].startswith("peak 0.") and "the CPU has" in lines[11]
    words = re.sub(r"\d[\d.e-]*", "N", lines[12])
    phases = "generation N, scoring N, training N"
    assert words == f"an update takes about N s on HNs (estimated): {phases}"
    assert len(lines) == 13
    assert not err and sorted(here.rglob("*")) == before


def test_continuations_are_not_in_the_time(here, capsys):
    assert run("--advantages vine:3 --n-env 4 --e-len 5") == 0
    last = capsys.readouterr().out.splitlines()[-1]  # 3 from each of 4 x 5 states, and of the cuts
    assert last == "that leaves out 60 or more continuations of --advantages vine:3"


def test_an_engine_without_room_for_a_turn():
    # 7.6 10^9 weights of 2 bytes and one turn of 1,536 tokens, in a share of 15 GB
    line = advice.times(QWEN, replace(GPU, vllm_share=15 * 10**9))
    assert line.startswith("vLLM has no room for one turn") and "gpu-memory-utilization" in line


def test_a_run_that_does_not_fit_is_refused_with_advice(here, capsys, monkeypatch):
    monkeypatch.setattr(advice, "capacities", lambda ranks: (10**6, 10**6))
    assert run("--run-dir r --prompt-limit 64 --response-limit 64") == 2
    out, err = capsys.readouterr()
    assert "total" in out and err.count("\n") == 1
    assert err.startswith("fit: error: the run needs 0.")
    for flag in ("--gradient-checkpointing", "--token-budget 128", "--dtype bfloat16"):
        assert flag in err
    assert "--offload" not in err  # it does not help on a CPU
    assert not (here / "r").exists()


def test_ranks_share_the_memory_of_a_cpu_and_the_environments(here, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(advice, "capacities", lambda ranks: asked.append(ranks) or (10**9, 10**9))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert run() == 0 and asked == [2]
    args = main.get_args([*SMALL.split(), "--model", "./m"])
    setting = advice.setting_of(args, 10**9)
    assert (setting.ranks, setting.n_env) == (2, 1)


def test_one_turn_is_computed_whatever_the_budget(here):
    args = main.get_args([*SMALL.split(), "--model", "./m", "--prompt-limit", "8192"])
    assert args.token_budget < args.prompt_limit
    assert advice.setting_of(args, 1).token_budget == args.prompt_limit + args.response_limit


def test_flags_that_a_run_may_have(here):
    args = main.get_args([*SMALL.split(), "--model", "./m"])
    args.zero_stage, args.offload = 1, "both"
    setting = advice.setting_of(args, 1)
    assert (setting.offload_optimizer, setting.reference) == (True, "host")


def test_fit_accepts_a_resumed_run(here):
    typed = ["--model", "./m", "--env-name", "toy", "--n-env", "2", "--e-len", "2"]
    saved = json.loads(json.dumps(vars(main.get_args(typed)), default=str))
    (here / "args.json").write_text(json.dumps({"args": saved}))
    assert fit(["--resume", str(here)]) == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "cannot read its configuration"),
        (GPT2Config(n_layer=1, n_embd=8, n_head=2), "no estimate for GPT2LMHeadModel"),
        (ONE_LAYER, "--critic-layers must be 0..1 for this model, got 2"),
    ],
)
def test_models_without_an_estimate(here, capsys, config, message):
    shutil.rmtree(here / "m")
    if config:
        config.save_pretrained(here / "m")
    assert run("--critic-layers 2") == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


# ---- a 7B model on a GPU of 80 GB -------------------------------------------------------------


def test_advice_begins_with_what_helps_most():
    # parameters, gradients, Adam: 16 bytes each of 7.6 10^9 and the critic's: over 122 GB alone
    assert not advice.fits(advice.needs(QWEN, GPU), HERE)
    line = advice.advice(QWEN, GPU, HERE)
    changes = line.partition("With one change: ")[2]
    sizes = [
        float(word)
        for word in changes.replace(",", "").split()
        if "." in word and word[0].isdigit()
    ]
    assert sizes == sorted(sizes) and "\n" not in line
    assert "8 ranks and --zero-stage 3 (fits)" in changes and "--train lora:16 (fits)" in changes
    assert "--zero-stage 1 --offload optimizer" in changes
    assert "--offload reference" in changes and "--gradient-checkpointing" in changes
    assert "gpu-memory-utilization" not in changes  # generation is not the peak


def test_the_model_has_the_size_that_its_makers_say():
    assert (QWEN.layer, QWEN.model) == (233_057_792, 7_615_616_512)


def test_settings_in_force_are_not_advised_again():
    setting = replace(
        GPU, zero_stage=3, ranks=8, gradient_checkpointing=True, token_budget=1536,
        offload_optimizer=True,
    )  # fmt: skip
    line = advice.advice(QWEN, setting, (10**6, 10**12))
    assert "With one change: 64 ranks and --zero-stage 3" in line and "--offload reference" in line
    for flag in ("--gradient-checkpointing", "--token-budget", "--dtype", ", --zero-stage 3"):
        assert flag not in line
    assert "optimizer" not in line and "no --offload" not in line


def test_advice_for_top_layers_can_be_followed():
    changes = advice.changes(replace(GPU, top_layers=12, ranks=4))
    assert "--zero-stage 2" in changes and "--zero-stage 3" not in changes
    assert changes["--train lora:16"]["top_layers"] == 0
    assert changes["--offload reference"] == {"reference": GPU.reference}  # saves nothing
    changes = advice.changes(replace(GPU, reference="host"))
    assert "--train lora:16 without --offload reference" in changes


def test_a_model_may_not_fit_while_it_is_loaded():
    # with adapters each rank loads the model and two layers of the critic in fp32
    whole = 4 * (7_615_616_512 + 2 * 233_057_792)
    setting = replace(
        GPU, ranks=64, zero_stage=3, n_env=1, gradient_checkpointing=True, lora_rank=16
    )
    assert loading(QWEN, setting) == whole > max(totals(QWEN, setting).values())
    assert advice.needs(QWEN, setting)[0] == whole
    assert "the peak is at the start" in advice.table(QWEN, setting, HERE)
    # without them it has its share. lm_head and two layers are gathered, and the layers copied;
    # then there is a share of the reference in bf16
    shards = replace(setting, lora_rank=0, reference="host")
    expected = 4 * (7_615_616_512 // 64 + 152_064 * 3584 + 2 * 2 * 233_057_792)
    assert loading(QWEN, shards) == expected
    shards = replace(shards, reference="sharded")
    assert loading(QWEN, shards) == expected + 2 * 7_615_616_512 // 64
    copied = replace(setting, zero_stage=2, lora_rank=0)
    assert loading(QWEN, copied) == whole + 2 * 7_615_616_512


def test_a_model_that_is_too_large_for_this_program():
    # 15.2 GB in bf16 and 30.5 GB in fp32
    line = advice.impossible("m", QWEN, replace(GPU, zero_stage=3), 15 * 10**9)
    assert line == (  # on two GPUs, each half of the weights would leave less than half of it
        "--model m: one GPU has 15.0 GB, and vLLM needs 15.2 GB there for the weights; "
        "--engine vllm:4 spreads them over 4 ranks"
    )
    assert advice.impossible("m", QWEN, replace(GPU, zero_stage=3, sharing=2), 15 * 10**9) == ""
    line = advice.impossible("m", QWEN, GPU, 30 * 10**9)
    assert "each rank loads the whole model in fp32, 30.5 GB; --zero-stage 3 without" in line
    with_adapters = replace(GPU, zero_stage=3, lora_rank=16)
    assert advice.impossible("m", QWEN, with_adapters, 30 * 10**9) == line
    fine = [(replace(GPU, zero_stage=3), 16), (GPU, 31), (replace(GPU, cuda=False), 1)]
    for setting, size in fine:
        assert advice.impossible("m", QWEN, setting, size * 10**9) == ""


def test_the_host_may_be_too_small():
    # LoRA fits; offloaded, 28 bytes for each of 7.6 10^9: over 213 GB of the host
    setting = replace(
        GPU, zero_stage=3, ranks=1, offload_optimizer=True, gradient_checkpointing=True,
        token_budget=1536,
    )  # fmt: skip
    line = advice.advice(QWEN, setting, (10**12, 10**11))
    assert line.startswith("the run needs 2") and "of the host per rank, which has 100.0 GB" in line
    assert "no --offload optimizer" in line and "--train lora:16" in line


def test_the_batches_of_the_warm_up_may_be_too_large_for_the_host():
    # Crafter: 128 x 16 turns and 20 times as many of 4096 + 512 tokens, in each rank's lists
    batch = dict(n_env=128, e_len=16, prompt_limit=4096, token_budget=4608)
    cold, warm = replace(GPU, **batch), replace(GPU, w_epoch=20, **batch)
    # arrays for each turn, and lists of the ids that each environment goes on from
    arrays, ids = 2048 * (4 * 4096 + 26 * 512), 128 * 40 * (2 * 4096 + 512)
    assert advice.needs(QWEN, cold)[1] == arrays + ids
    assert advice.needs(QWEN, warm)[1] == 20 * arrays + ids
    line = advice.advice(QWEN, warm, (10**12, 12 * 10**8))
    assert line.startswith("the run needs 1.3 GB of the host per rank, which has 1.2 GB. With one")
    assert "half the --w-epoch (fits) 0.7 GB" in line and "half the --n-env (fits) 0.6 GB" in line
    assert "half the --w-epoch" not in advice.advice(QWEN, cold, (10**12, 10**6))
    # eight ranks of 16 environments hold as much, each of them
    ranks = replace(warm, ranks=8, n_env=16)
    assert advice.needs(QWEN, ranks)[1] == 20 * arrays + ids


def test_a_model_that_is_too_large_anyway():
    setting = replace(
        GPU, lora_rank=16, reference="host", gradient_checkpointing=True, token_budget=1536,
        ranks=8, zero_stage=3, vllm_share=0, n_env=1, cuda=False,
    )  # fmt: skip
    assert advice.advice(QWEN, setting, (10**6, 10**6)).endswith("Take a smaller model")


def test_the_memory_of_a_machine_without_proc(monkeypatch):  # as macOS
    def no_file(*args, **options):
        raise FileNotFoundError

    monkeypatch.setattr(host_memory, "open", no_file, raising=False)
    device, host = advice.capacities(1)
    assert device == host == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert advice.capacities(2)[1] == host // 2


def test_the_memory_of_this_machine():
    device, host = advice.capacities(1)
    assert device == host > 10**6 and advice.capacities(2)[1] < host
    assert not torch.cuda.is_available()  # with a GPU, mem_get_info gives the device's memory
