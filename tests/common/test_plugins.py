"""A user's own environment, memory, estimator and engine, as files in the working directory."""

import json
import sys

import pytest
from real_runs import launch, start

import main
from recipes import TINY

SMALL = f"""--model {TINY} --n-env 2 --e-len 2 --minibatch 4 --num-updates 1 --w-epoch 1 --w-iter 1
--response-limit 4 --eval-episodes 2 --eval-interval 0 --run-dir run"""
OWN = """
import gymnasium, torch
from gymnasium.spaces import Text
from memory.window import WindowMemory
from ppo.advantages.gae import dual_gae
from ppo.engines.lockstep import TransformersEngine


class Door(gymnasium.Env):
    observation_space = action_space = Text(100)
    actions = ("push", "pull")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "You stand before a door.", {}

    def step(self, action):
        return "It is open.", float(action == "pull"), True, False, {}


gymnasium.register("Door-v0", Door)


class Forgetful(WindowMemory):
    def remembered(self, step):
        return "..."


def plain_returns(batch):
    E, N, T = batch.values.shape
    assert batch.rewards.shape == (E, N, T) and batch.next_values.shape == (E, N)
    assert (batch.gamma_step, batch.lam_token) == (0.5, 1.0)
    advantages, returns = dual_gae(batch)
    return torch.zeros_like(advantages), returns


class Loud(TransformersEngine):
    def response(self, prompt, ids, logps):
        open("engine.txt", "a").write("x")
        return super().response(prompt, ids, logps)
"""


@pytest.mark.parametrize(("workers", "begin"), [(0, launch), (1, start)])
def test_a_file_beside_the_user_is_found(workers, begin, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    flags = "--env-name own:Door-v0 --memory own:Forgetful --advantages own:plain_returns"
    flags += f" --engine own:Loud --gamma-step 0.5 --env-workers {workers}"
    process = begin(tmp_path, *SMALL.split(), *flags.split())
    message = process.communicate(timeout=300)[0]
    assert process.returncode == 0, message
    assert "engine Loud" in message and (tmp_path / "engine.txt").read_text() == "x" * 8
    (metrics,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert metrics["ppo/advantage_std"] == 0 and metrics["ppo/policy_loss"] == 0


MISTAKES = [
    # what is chosen, and what the line must say
    (
        "--memory windw",
        "unknown memory 'windw'; choices: window, action, periodic, full, notes, summary, "
        "verbatim, or module",
    ),
    (
        "--advantages gea",
        "unknown estimator 'gea'; choices: dual-gae, token-gae, turn-gae, rloo, grpo, gigpo, "
        "vine, or m",
    ),
    (
        "--engine vlm",
        "unknown engine 'vlm'; choices: auto, vllm, vllm-lora, transformers, vllm:2 for",
    ),
    ("--env-name bad name:X", "unknown environment"),
    *[
        (f"--{flag} {name}", message.format(kind, name))
        for flag, kind in (("memory", "memory"), ("advantages", "estimator"), ("engine", "engine"))
        for name, message in (
            ("nowhere:thing", "{} '{}' cannot be imported (ModuleNotFoundError: No module named"),
            ("raising:thing", "{} '{}' cannot be imported (KeyError: 'mine')"),
            ("torn:thing", "{} '{}' cannot be imported (SyntaxError: "),
            ("json:thing", "module 'json' has no 'thing'; choices: "),
            ("a b:thing", "unknown {} '{}'; choices: "),
        )
    ],
    (
        "--env-name nowhere:Env-v0",
        "environment 'nowhere:Env-v0' cannot be imported (ModuleNotFound",
    ),
    ("--env-name raising:Env-v0", "environment 'raising:Env-v0' cannot be imported (KeyError: 'mi"),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_a_mistake_in_a_name_is_one_line(flags, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "raising.py").write_text("raise KeyError('mine')")
    (tmp_path / "torn.py").write_text("def thing(:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    flag, name = flags.split(" ", 1)
    try:
        code = main.program([*SMALL.split(), "--engine", "transformers", flag, name])
    except SystemExit as exit:  # argparse ends the program by itself
        code = exit.code
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith("main.py: error: ") and error.count("\n") == 1, error
    assert message in error
    assert not (tmp_path / "run").exists()
