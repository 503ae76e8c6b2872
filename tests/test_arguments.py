"""A user's mistake: one line that names it, exit code 2, nothing written. And the defaults."""

import json
import math
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from arguments import TINY, get_args

ROOT = Path(__file__).resolve().parent.parent
TOY = "--env-name toy --prompt-limit 4096 --engine transformers"
SMALL = "--n-env 2 --e-len 1 --num-updates 1 --w-epoch 0 --response-limit 2 --eval-episodes 1"


def refused(argv: list[str], capsys, monkeypatch) -> str:
    """Run main.py in this process, as a program; it must say one line and exit with code 2."""
    monkeypatch.setattr(sys, "argv", ["main.py", *argv])
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        runpy.run_path(str(ROOT / "main.py"), run_name="__main__")
    said = capsys.readouterr()
    assert exit.value.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1 and said.err.startswith("main.py: error: "), said.err
    return said.err


FLAGS = [
    # flags, and what the line must say
    ("--env-name babyai-gotoo", "unknown environment 'babyai-gotoo'; choices, nearest first: baby"),
    ("--env-name babyai", "unknown environment 'babyai'"),
    ("--env-name baba-", "unknown environment 'baba-'"),
    ("--env-name no_such_module:Env-v0", "'no_such_module:Env-v0' cannot be made"),
    ("--n-env 20", "n_env x e_len = 20 x 8 = 160 turns do not divide into minibatches of 128"),
    ("--n-env 4 --e-len 2 --minibatch 3", "4 x 2 = 8 turns do not divide into minibatches of 3"),
    ("--n-env 0", "--n-env must be at least 1, got 0"),
    ("--e-len 0", "--e-len must be at least 1, got 0"),
    ("--num-updates 0", "--num-updates must be at least 1, got 0"),
    ("--ppo-epoch 0", "--ppo-epoch must be at least 1, got 0"),
    ("--minibatch 0", "--minibatch must be at least 1, got 0"),
    ("--response-limit 0", "--response-limit must be at least 1, got 0"),
    ("--eval-episodes 0", "--eval-episodes must be at least 1, got 0"),
    ("--save-interval 0", "--save-interval must be at least 1, got 0"),
    ("--max-episode-steps 0", "--max-episode-steps must be at least 1, got 0"),
    ("--memory-length -1", "--memory-length must be at least 0, got -1"),
    ("--w-epoch -1", "--w-epoch must be at least 0, got -1"),
    ("--seed -1", "--seed must be at least 0, got -1"),
    ("--critic-layers -1", "--critic-layers must be at least 0, got -1"),
    ("--gamma-step 1.01", "--gamma-step must be in [0, 1], got 1.01"),
    ("--lam-token -0.5", "--lam-token must be in [0, 1], got -0.5"),
    ("--gamma-token nan", "--gamma-token must be in [0, 1], got nan"),
    ("--lr -0.1", "--lr must be"),
    ("--critic-lr nan", "--critic-lr must be"),
    ("--kl-coef -0.1", "--kl-coef must be"),
    ("--kl-target 0", "--kl-target must be"),
    ("--clip 0", "--clip must be"),
    ("--value-clip -1", "--value-clip must be"),
    ("--env-timeout 0", "--env-timeout must be above 0, got 0"),
    ("--max-env-faults 1.5", "--max-env-faults must be in [0, 1], got 1.5"),
    ("--max-grad-norm 0", "--max-grad-norm must be"),
    ("--first-token-weight 0", "--first-token-weight must be"),
    ("--temperature 0", "--temperature must be above 0 in training"),
    ("--temperature nan", "--temperature must be"),
    ("--n-env 4 --env-workers 8", "--env-workers 8 is more than --n-env 4"),
    ("--n-env many", "argument --n-env: invalid int value: 'many'"),
    ("--engine none", "argument --engine: invalid choice: 'none'"),
    ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
    ("--resume none", "--resume none: no run there (args.json is missing)"),
    ("--model ./none", "--model ./none: no such directory"),
    ("--model empty", "--model empty: no such directory (give one, or a hub name as org/model)"),
    ("--model ./empty", "--model ./empty: cannot load it"),
]


@pytest.mark.parametrize(("flags", "said"), FLAGS)
def test_one_line_for_bad_flags(flags, said, model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "./empty" in flags:
        (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    # the model that exists comes first: what is typed later counts
    assert said in refused(f"--model {model_dir} {flags}".split(), capsys, monkeypatch)
    assert sorted(tmp_path.rglob("*")) == before  # neither runs/ nor anything else


BESIDE_THE_MODEL = [
    # what shows only when model and environment are there
    ("--prompt-limit 20", "prompt limit 20 is below the system prompt and the current observation"),
    ("--critic-layers 3", "--critic-layers must be 0..2 for this model, got 3"),
    ("--memory newest", "unknown memory 'newest'; choices: window, action, periodic, full"),
    ("--memory no_such_module:Memory", "memory 'no_such_module:Memory' cannot be imported"),
    ("--memory periodic --memory-length 0", "memory length must be >= 1 for a periodic memory"),
    ("--run-dir used", "used is not empty; go on from it with --resume used, or name another"),
    ("--run-dir used/file", "used/file is not empty"),
    ("--run-dir used/file/run", "cannot write to used/file/run: Not a directory"),
]


@pytest.mark.parametrize(("flags", "said"), BESIDE_THE_MODEL)
def test_one_line_before_anything_is_written(flags, said, model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("results")
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    argv = f"--model {model_dir} {TOY} {SMALL} --critic-layers 1"
    argv += " --minibatch 2 --ppo-epoch 1 --lr 0.1 --critic-lr 0.1 --w-iter 1 --w-lr 0.1"
    argv += f" --w-fraction 0.1 --memory-length 1 --value-clip 1 {flags}"
    assert said in refused(argv.split(), capsys, monkeypatch)
    after = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    assert after == before


def test_one_line_for_weights_that_are_not_whole(model_dir, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model_dir, "broken")
    os.truncate("broken/model.safetensors", 100)  # a download that stopped
    said = refused(["--model", "./broken", *TOY.split(), *SMALL.split()], capsys, monkeypatch)
    assert "--model ./broken: cannot load it" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--env-name nonsense", "unknown environment 'nonsense'"),
        (f"{TOY} {SMALL} --run-dir used", "used is not empty"),
    ],
)
def test_the_program_itself(flags, said, model_dir, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("results")
    run = subprocess.run(
        [sys.executable, ROOT / "main.py", "--model", model_dir, *flags.split()],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.count("\n") == 1 and said in run.stderr
    assert "Traceback" not in run.stderr and "\r" not in run.stderr  # nor a progress bar
    assert {path.name for path in tmp_path.rglob("*")} == {"used", "file"}


def test_a_bug_is_not_hidden_behind_one_line(model_dir, tmp_path, monkeypatch):
    """Only this project's own ValueErrors are a user's mistake; one from a library is a bug."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.optim, "AdamW", lambda *a, **k: json.loads("{"))
    argv = ["main.py", "--model", model_dir, "--critic-layers", "1", *TOY.split(), *SMALL.split()]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(json.JSONDecodeError):
        runpy.run_path(str(ROOT / "main.py"), run_name="__main__")


# ---- defaults -------------------------------------------------------------------------------

MODEL = ["--model", "org/model"]


def test_defaults_are_the_papers_babyai_run():
    args = get_args(["--env-name", "babyai-goto", *MODEL])
    assert (args.n_env, args.e_len, args.minibatch, args.ppo_epoch) == (32, 8, 128, 1)
    assert (args.lr, args.critic_lr, args.max_grad_norm, args.temperature) == (1e-6, 1e-5, 1, 1)
    assert (args.prompt_limit, args.response_limit, args.memory_length) == (1024, 512, 1)
    assert (args.format_penalty, args.num_updates, args.eval_interval) == (0.1, 300, 30)
    assert (args.w_epoch, args.w_iter, args.w_fraction) == (40, 5, 0.1)
    assert (args.gamma_step, args.lam_step, args.gamma_token, args.lam_token) == (0.99, 0.95, 1, 1)
    assert (args.kl_coef, args.kl_target, args.kl_estimator) == (0.001, None, "k1")
    assert (args.clip, args.value_clip, args.first_token_weight) == (0.2, 0.5, 3)
    assert args.entropy_coef == 0 and not args.use_proper_time_limits


def test_defaults_of_babaisai():
    args = get_args(["--env-name", "baba-goto_win", *MODEL])
    assert (args.response_limit, args.w_epoch, args.w_iter) == (384, 40, 10)
    assert (args.n_env, args.e_len, args.minibatch, args.num_updates) == (32, 8, 128, 300)


def test_defaults_of_crafter():
    args = get_args(["--env-name", "crafter", *MODEL])
    assert (args.n_env, args.e_len, args.minibatch, args.num_updates) == (128, 16, 1024, 170)
    assert (args.w_epoch, args.w_iter, args.prompt_limit) == (20, 20, 4096)
    assert math.isinf(args.value_clip)  # off: its returns are about 10


def test_the_model_follows_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert get_args([]).model == "Qwen/Qwen2.5-3B-Instruct"
    assert get_args(["--env-name", "crafter"]).model == "Qwen/Qwen2.5-7B-Instruct"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Path(get_args([]).model) == TINY


def test_the_embedded_model_has_its_own_recipe_wherever_it_is_named():
    paper, embedded = get_args(MODEL), get_args(["--model", str(TINY)])
    assert embedded.lr > paper.lr
    by_another_path = get_args(["--model", str(TINY.parent / ".." / "models" / "tiny")])
    assert by_another_path.lr == embedded.lr


def test_what_is_typed_counts_more():
    args = get_args(["--env-name", "crafter", *MODEL, "--n-env", "8", "--value-clip", "0.5"])
    assert (args.n_env, args.value_clip, args.e_len) == (8, 0.5, 16)
    # 8 x 16 = 128 turns: the family's minibatch of 1024 becomes the whole batch
    assert args.minibatch == 128


def test_greedy_is_for_evaluation():
    assert get_args(["--temperature", "0", "--eval-only"]).temperature == 0
