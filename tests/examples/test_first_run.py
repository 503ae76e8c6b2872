"""The notebook of a first run, executed from top to bottom with a small setting."""

import json
import os
import subprocess
import sys
from pathlib import Path

from made_runs import EVALUATION, write_run

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "first_run.ipynb"
FLAGS = """--n-env 8 --e-len 4 --minibatch 32 --num-updates 1 --w-epoch 1 --w-iter 1
--max-episode-steps 4 --eval-episodes 8 --eval-interval 2"""
SUCCESS = {1: [0.5, 0.6, 0.7], 3: [0.6, 0.8, 0.7]}  # of the sweep: weight -> one for each seed


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    # Its cells are plain Python, so that no Jupyter is needed here. The runs of its sweep are found
    # finished.
    for weight, values in SUCCESS.items():
        for seed, value in enumerate(values, 1):
            metrics = [{"update": k, "turns": k * 256, "rollout/success": value} for k in (9, 10)]
            end = EVALUATION | {"update": 10, "eval/success": value}
            settings = dict(env_name="babyai-pickup", n_env=32, e_len=8, num_updates=10, w_epoch=10)
            settings |= dict(seed=seed, first_token_weight=weight)
            folder = tmp_path / "run-question" / f"first-token-weight={weight}-seed{seed}"
            write_run(folder, metrics, [end], **settings)
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    script = tmp_path / "notebook.py"
    script.write_text(code)
    env = os.environ | {"FIRST_RUN_DIR": str(tmp_path / "run"), "FIRST_RUN_FLAGS": FLAGS}
    env |= {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, script], cwd=ROOT / "examples", env=env,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    output = done.stdout
    assert "Your goal is to go to" in output and "--- user" in output and "valid: True" in output
    assert "update    1/1" in output and "| 1 | 8 |" in output and "-- turn 1 " in output
    # differences .1, .2, 0: mean .1, standard deviation .1, t of 2 degrees of freedom 4.303:
    # .1 +- 4.303 x .1 / sqrt(3) = .1 +- .248
    assert output.count(" is finished") == 6 and "| +0.100 [-0.148, +0.348] |" in output
