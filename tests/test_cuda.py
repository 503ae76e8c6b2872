"""The trainer on a GPU that the host stands in for; `tests/fake_cuda` says what that can show."""

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from cuda_mutants import MISTAKES
from cuda_runs import SETTINGS, SMALL, train
from fake_cuda import TWO_GPUS
from fake_cuda.build import compiler
from ranks import train as train_on_fixed_turns
from real_runs import CLOCK, run
from torch.testing import assert_close

if compiler() is None:
    pytest.skip("the fake GPU needs g++", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[1]
LOOK = """
from vllm.model_executor.models.registry import ModelRegistry
ModelRegistry.models["Qwen2ForCausalLM"].inspect_model_cls()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Return the folder with what `cuda_runs.py` leaves."""
    folder = tmp_path_factory.mktemp("runs")
    passes(run(["tests/cuda_runs.py", folder], at_start=TWO_GPUS))
    return folder


def passes(ended: subprocess.CompletedProcess) -> None:
    assert ended.returncode == 0, ended.stderr[-3000:]


def metrics(folder: Path) -> list[dict]:
    """Read the metrics of a run without clock times."""
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in r.items() if not k.startswith(CLOCK)} for r in records]


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_ends_and_its_engine_agrees_with_the_trainer(setting, runs):
    for record in metrics(runs / setting):
        assert record["ppo/value_loss" if setting != "grpo" else "ppo/policy_loss"] is not None
        # the trainer's kernel and the engine's attention differ by the rounding of bf16
        assert (record["engine/logp_gap_mean"] or 0) < 1e-3
    assert (runs / setting / "model/config.json").exists()


def test_numbers_in_fp32_are_those_of_the_cpu(runs, tmp_path):
    train(tmp_path / "run", SETTINGS["float32"])
    [ours], [theirs] = metrics(runs / "float32"), metrics(tmp_path / "run")
    assert ours.keys() == theirs.keys()
    known = {name: value for name, value in theirs.items() if value is not None}
    assert {name: ours[name] for name in known} == pytest.approx(known, rel=1e-5, abs=1e-6)


def test_bf16_differs_from_fp32_by_rounding(runs):
    half, single = (metrics(runs / name)[0] for name in ("packed", "float32"))
    assert half["ppo/value_loss"] != single["ppo/value_loss"]
    assert half["ppo/value_loss"] == pytest.approx(single["ppo/value_loss"], rel=1e-2)


def test_turns_of_a_full_history_are_merged(runs):
    assert metrics(runs / "merged")[0]["ppo/merged"] > 0


def test_a_resumed_run_goes_on_as_if_nothing_had_happened(runs):
    assert metrics(runs / "resumed") == metrics(runs / "packed")


def test_packed_attention_is_that_of_padded_rows(runs):
    ours, theirs = torch.load(runs / "attention.pt")
    for packed, padded in zip(ours, theirs, strict=True):  # the output and three gradients
        # rounded to bf16, which keeps 8 bits, before the keys' two query heads are added
        assert_close(packed.float(), padded, rtol=2**-7, atol=2**-7)


def test_two_ranks_compute_what_one_process_does(tmp_path):
    program = ["tests/ranks.py", tmp_path / "out.pt", "2", "3"]  # stages of ZeRO
    passes(run(program, ranks=2, at_start=TWO_GPUS))
    expected, _ = train_on_fixed_turns("0")
    for parameters, _ in torch.load(tmp_path / "out.pt", map_location="cpu").values():
        assert_close(parameters, expected, atol=1e-4, rtol=0)


def test_main_trains_on_two_ranks_as_it_does_on_one(tmp_path):
    small = [*SMALL.split(), "--model", "models/tiny", "--w-epoch", "2", "--w-fraction", "0.5"]
    command = ["main.py", *small, "--dtype", "float32", "--run-dir"]
    passes(run([*command, tmp_path / "two", "--zero-stage", "2"], ranks=2, at_start=TWO_GPUS))
    passes(run([*command, tmp_path / "one"], at_start=TWO_GPUS))
    [ours], [theirs] = metrics(tmp_path / "two"), metrics(tmp_path / "one")
    known = {name: value for name, value in theirs.items() if value is not None}
    assert {name: ours[name] for name in known} == pytest.approx(known, rel=1e-3, abs=1e-3)


def test_main_trains_in_shards_and_vllm_gets_them_whole(tmp_path):
    pytest.importorskip("vllm")
    small = [*SMALL.split(), "--model", "models/tiny", "--engine", "vllm", "--dtype", "float32"]
    command = ["tests/cuda_vllm.py", *small, "--zero-stage", "3", "--run-dir", tmp_path]
    passes(run(command, ranks=2, at_start=TWO_GPUS, TORCHDYNAMO_DISABLE="1"))
    [found] = metrics(tmp_path)
    assert found["ppo/ratio_first_minibatch"] == pytest.approx(1, abs=1e-5)
    assert found["engine/logp_gap_mean"] < 1e-5 and found["engine/push_gap"] < 1e-5
    assert found["ppo/grad_norm"] > 0


def test_vllm_takes_our_arguments_for_a_gpu():
    pytest.importorskip("vllm")
    # vLLM keeps what it finds out about a model's class, in a process that has no fake GPU.
    passes(run(["-c", LOOK]))
    ended = run(["tests/ppo/engines/vllm_on_cuda.py", "models/tiny"], at_start=TWO_GPUS)
    passes(ended)
    alone, shared = json.loads(ended.stdout.splitlines()[-1])
    arguments = set(alone.pop("arguments")) - {"sleep_mode_offload_cudagraph"}  # new in 0.32
    assert alone == {
        "vllm_ranks": "1",
        "vllm_runner": "V1",
        "vllm_async": "off",
        "vllm_compile": "off",
        "vllm_graphs": "full_decode_only",
        "launcher": "uni",
        "worker": "vllm.v1.worker.gpu_worker.Worker",
        "sleeps": True,
        "offloads graphs": True,
        "graph sizes": [1, 2, 4, 8, 16],  # decode steps of up to 8 prompts, and one size beyond
    }
    several = {"vllm_ranks": "2", "launcher": "external_launcher"}
    assert shared == alone | several | {"arguments": shared["arguments"]}
    known = (ROOT / "tests/data/vllm-0.25-arguments.txt").read_text().split()  # of its EngineArgs
    assert arguments | {"enable_lora", "max_loras", "max_lora_rank"} <= set(known)


def test_the_doctor_finds_nothing():
    quiet = dict(TORCHDYNAMO_DISABLE="1")  # as on a CPU, which vLLM takes the machine for
    engine = "vllm" if find_spec("vllm") else "transformers"
    program = ["doctor.py", "--env-name", "toy", "--model", "models/tiny", "--engine", engine]
    ended = run(program, ranks=2, at_start=TWO_GPUS, **quiet)
    passes(ended)
    marks = {line[6:24].strip(): line[:4] for line in ended.stdout.splitlines()[:-1]}
    assert len(marks) == 18 and set(marks.values()) == {"pass"}


def test_a_device_mistake_is_found(tmp_path):
    number = 2  # `python tests/cuda_mutants.py` tries all of them
    program = ["tests/cuda_mutants.py", str(number), tmp_path / "run"]
    assert run(program, at_start=TWO_GPUS).returncode, f"missed: {MISTAKES[number]}"
