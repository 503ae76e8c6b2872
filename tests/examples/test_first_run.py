"""The notebook of a first run, executed from top to bottom with a small setting."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "first_run.ipynb"
FLAGS = """--n-env 8 --e-len 4 --minibatch 32 --num-updates 1 --w-epoch 1 --w-iter 1
--max-episode-steps 4 --eval-episodes 8 --eval-interval 2"""


def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    # Its cells are plain Python, so that no Jupyter is needed here.
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
