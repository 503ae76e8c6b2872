"""What an update of a real language model costs on a CPU, under settings that may make it cheaper.

    python -m benchmarks.real_model runs/goto-clone [--only full] [FLAGS OF main.py]

The model plays babyai-goto (128 turns an update, in 16 environments), unless flags say otherwise.
Each row is a run of main.py of two updates without a warm-up, of which the second is shown.
`tokens/s` are those of the batch's prompts and responses per second of `score` and `update`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from common.cli import MAIN, Parser

BASE = """--env-name babyai-goto --n-env 16 --e-len 8 --minibatch 64 --w-epoch 0 --critic-layers 1
--prompt-limit 1024 --response-limit 40 --num-updates 2 --eval-interval 0 --dtype bfloat16
--engine vllm --rows padded""".split()
ROWS = {  # what each row changes
    "no history": "--memory-length 0",
    "... and no reference": "--memory-length 0 --kl-coef 0",
    "... and no old log-probs": "--memory-length 0 --tis-cap 2",
    "... and neither": "--memory-length 0 --kl-coef 0 --tis-cap 2",
    "... and LoRA": "--memory-length 0 --train lora:16",
    "... and the top ten layers": "--memory-length 0 --train top:10",
    "... and the transformers engine": "--memory-length 0 --engine transformers",
    "... and float32": "--memory-length 0 --dtype float32",
    "full history": "--memory full",
    "full history, merged turns": "--memory full --rows merged",
}
TIMES = ["collect", "score", "update", "push", "total"]


def main() -> None:
    parser = Parser("benchmarks.real_model", description=__doc__.splitlines()[0])
    parser.add_argument("model", help="as --model of main.py")
    parser.add_argument("--only", default="", metavar="WORD", help="rows that name this")
    args, flags = parser.parse_known_args()
    base = [*BASE, "--model", args.model, *flags]
    print(f"{'seconds':38s}" + "".join(f"{name:>9s}" for name in TIMES) + f"{'tokens/s':>10s}")
    for name in filter(lambda name: args.only in name, ROWS):
        found = last_update([*base, *ROWS[name].split()])
        turns = found["turns"] / found["update"]
        length = found["rollout/prompt_tokens"] + found["rollout/response_tokens"]
        rate = turns * length / (found["time/score"] + found["time/update"])
        shown = "".join(f"{found[f'time/{part}']:9.1f}" for part in TIMES)
        print(f"{name:38s}{shown}{rate:10.0f}", flush=True)


def last_update(flags: list[str]) -> dict:
    """Return the metrics of a run's last update. SystemExit: the run failed"""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = [sys.executable, str(MAIN), *flags, "--run-dir", str(run)]
        if code := subprocess.run(words, stdout=subprocess.DEVNULL).returncode:
            sys.exit(code)  # main.py has said why
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [found for found in map(json.loads, lines) if "time/update" in found][-1]


if __name__ == "__main__":
    main()
