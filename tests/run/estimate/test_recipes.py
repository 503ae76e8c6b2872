"""The recipes of docs/recipes.md against the memory estimate, on GPUs that are only pretended."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config

from arguments import get_args
from common.plugins import UserError
from run.estimate import advice
from run.estimate.shape import load_shape

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "recipes.md").read_text()
ROWS = re.findall(r"^\| ((?:8 x )?)(\d+) GB \| (\S+) \| (.*?) \| ([\d.]+) \|$", PAGE, re.M)
# The published shapes of Qwen2.5: hidden, MLP, layers, heads, heads of keys, vocabulary, tied
SHAPES = {
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "3B": (2048, 11008, 36, 16, 2, 151936, True),
    "7B": (3584, 18944, 28, 28, 4, 152064, False),
    "14B": (5120, 13824, 48, 40, 8, 152064, False),
}
LARGER = {
    "32B": (5120, 27648, 64, 40, 8, 152064, False),
    "72B": (8192, 29568, 80, 64, 8, 152064, False),
}
SIZES = ("24", "48", "80", "8 x 80")
TOO_LARGE = {("24", "7B"), ("24", "14B"), ("48", "14B"), ("80", "14B")}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Size -> a directory with the model's config.json, and its shape."""
    found = {}
    for size, (D, F, L, H, K, V, tied) in (SHAPES | LARGER).items():
        folder = tmp_path_factory.mktemp(size)
        Qwen2Config(
            hidden_size=D, intermediate_size=F, num_hidden_layers=L, num_attention_heads=H,
            num_key_value_heads=K, vocab_size=V, tie_word_embeddings=tied,
            architectures=["Qwen2ForCausalLM"],
        ).save_pretrained(folder)  # fmt: skip
        found[size] = str(folder), load_shape(str(folder))
    return found


@pytest.fixture
def gpu(monkeypatch):
    """A function that pretends so many GPUs, with vLLM installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "vllm" or find(name))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return lambda ranks: monkeypatch.setenv("WORLD_SIZE", str(ranks))


def test_all_recipes_are_there():
    assert len(ROWS) == 16
    found = {(many + size, model) for many, size, model, *_ in ROWS}
    assert found == {(size, model) for size in SIZES for model in SHAPES} - TOO_LARGE


@pytest.mark.parametrize(("many", "size", "model", "flags", "message"), ROWS)
def test_a_recipe_fits(many, size, model, flags, message, models, gpu):
    gpu(8 if many else 1)
    path, shape = models[model]
    words = "" if flags == "(none)" else flags.strip("`")
    args = get_args(["--env-name", "babyai-goto", "--model", path, *words.split()])
    bytes_there = int(size) * 10**9
    setting = advice.setting_of(args, bytes_there)
    assert setting.cuda and setting.engine == "vllm" and setting.itemsize == 2
    device, _ = advice.needs(shape, setting)
    assert device / 1e9 == pytest.approx(float(message), abs=0.06)
    assert device <= 0.9 * bytes_there
    assert setting.vllm_share >= 1.2 * 2 * shape.model  # its weights, and a cache


@pytest.mark.parametrize(("model", "ranks", "sharing"), [("32B", 16, 4), ("72B", 32, 8)])
def test_larger_models_fit_where_ranks_share_an_engine(model, ranks, sharing, models, gpu):
    gpu(ranks)
    path, shape = models[model]
    flags = f"--zero-stage 3 --gradient-checkpointing --engine vllm:{sharing}".split()
    args = get_args(["--env-name", "babyai-goto", "--model", path, *flags])
    setting = advice.setting_of(args, 80 * 10**9)
    device, _ = advice.needs(shape, setting)
    assert f"{model} needs an estimated {device / 1e9:.1f} GB" in " ".join(PAGE.split())
    assert device <= 0.9 * 80e9
    assert setting.vllm_share >= 1.2 * 2 * shape.model / sharing
    assert not advice.impossible(path, shape, setting, 80 * 10**9)


def test_the_estimate_for_crafter_is_current(models, gpu):
    gpu(8)
    path, shape = models["7B"]
    flags = ["--zero-stage", "3", "--gradient-checkpointing"]
    setting = advice.setting_of(get_args(["--env-name", "crafter", "--model", path, *flags]), 8e10)
    device, host = advice.needs(shape, setting)
    text = " ".join(PAGE.split())
    assert f"{device / 1e9:.1f} GB per GPU and {host / 1e9:.1f} GB of host memory" in text


@pytest.mark.parametrize("size", [24, 80])
def test_a_normal_run_on_a_gpu_warns_in_one_line(size, models, gpu, monkeypatch, capsys):
    gpu(1)
    monkeypatch.setattr(advice, "capacities", lambda ranks: (size * 10**9, 500 * 10**9))
    args = get_args(["--model", models["1.5B"][0]])
    advice.check_size(args)
    message = capsys.readouterr().out
    assert message.count("\n") == (size == 24)
    if size == 24:  # 1.5B without LoRA: the estimate is 46.3 GB
        assert message.startswith("this may not fit: the run needs 46.3 GB of the device per rank")
        assert "--train lora:16 (fits)" in message
    monkeypatch.setattr(advice, "capacities", lambda ranks: (3 * 10**9, 500 * 10**9))
    # weights of 3.1 GB: 4 GPUs of 3 GB hold them in half of their memory, 2 do not
    with pytest.raises(UserError, match="vLLM needs 3.1 GB there .* --engine vllm:4 spreads them"):
        advice.check_size(args)
    monkeypatch.setattr(args, "engine", "vllm:4")
    with pytest.raises(UserError, match="each rank loads the whole model in fp32, 6.2 GB"):
        advice.check_size(args)
    monkeypatch.setattr(args, "engine", "vllm")
    monkeypatch.setattr(advice, "capacities", lambda ranks: (size * 10**9, 500 * 10**9))
    monkeypatch.setenv("RANK", "1")  # one rank tells it
    advice.check_size(args)
    args.model = "./nowhere"
    monkeypatch.delenv("RANK")
    advice.check_size(args)  # the run itself tells that there is no such model
    assert capsys.readouterr().out == ""


def test_without_a_gpu_nothing_is_estimated(monkeypatch):
    monkeypatch.setattr(advice, "load_shape", lambda path: 1 / 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    advice.check_size(get_args(["--env-name", "toy"]))
