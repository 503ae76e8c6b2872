"""--track: one line if wandb is missing, and wandb's offline mode where it is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from arguments import get_args

ROOT = Path(__file__).resolve().parents[2]
SMALL = """main.py --env-name toy --n-env 2 --e-len 2 --minibatch 4 --num-updates 1 --w-epoch 0
--response-limit 4 --prompt-limit 8192 --eval-episodes 2 --eval-interval 1 --engine transformers"""


def test_a_missing_wandb_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("run.checks.find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        get_args(["--track", "wandb"])
    message = "main.py: error: --track wandb needs the package wandb: pip install wandb\n"
    assert capsys.readouterr().err == message


def test_wandb_gets_the_figures_of_a_run_and_of_its_resumption(model_dir, tmp_path):
    """Offline, with the real package. What reached it is in its own file, as JSON texts."""
    pytest.importorskip("wandb")
    run = tmp_path / "run"
    env = os.environ | {"WANDB_MODE": "offline", "OMP_NUM_THREADS": "1", "WANDB_SILENT": "true"}
    for words in (
        [*SMALL.split(), "--model", model_dir, "--run-dir", str(run), "--track", "wandb"],
        ["main.py", "--resume", str(run), "--num-updates", "2"],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == "" and "wandb:" not in done.stdout
    known = (run / "wandb-id.txt").read_text().strip()
    logs = sorted((run / "wandb").glob(f"offline-run-*/run-{known}.wandb"))
    assert len(logs) == 2  # the second goes on in the same run
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for log, record in zip(logs, metrics, strict=True):
        assert f"{record['ppo/policy_loss']}".encode() in log.read_bytes()
        assert b"eval/success" in log.read_bytes()
