"""What an update of a real language model costs here and with TRL's GRPOTrainer, one after another.

    python -m benchmarks.peers.real_model --trl DIR --model runs/goto-clone [FLAGS OF main.py]

Every row makes UPDATES updates of at least TURNS turns, and shows means without the first: groups
of 8 whole episodes of at most 16 turns, or n_env x e_len where there is a critic. TRL gets turns as
rows through `rollout_func` (`benchmarks.peers.turns`), and trains TURNS of those that were played.
The columns are seconds per 1,000 turns: of playing them, and of everything that is done with those
that are trained. GB is the peak of the process.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common.cli import MAIN, Parser
from run.earlier import model_path

TURNS, UPDATES = 64, 3
STEPS = 2  # of the optimizer, an update
OURS = f"""--engine vllm --ppo-epoch 1 --minibatch {TURNS // STEPS} --num-updates {UPDATES}
--eval-interval 0""".split()
BATCH = f"--n-env 8 --e-len {TURNS // 8}".split()
GRPO = ["--advantages", "grpo", "--group-size", "8", *BATCH]
TRL = ["--batch-rows", str(TURNS), "--minibatches", str(STEPS), "--lr", "2e-5"]
ROWS = {
    "TRL": [*TRL, "--beta", "0.04"],
    "GRPO": GRPO,
    "GRPO, transformers' generation": [*GRPO, "--engine", "transformers"],
    "TRL without KL": TRL,
    "GRPO without KL": [*GRPO, "--kl-coef", "0"],
    "dual-discount GAE": [*BATCH, "--w-epoch", "0"],
}
MERGED = {"GRPO, merged turns": [*GRPO, "--rows", "merged"]}


def main() -> None:
    parser = Parser("benchmarks.peers.real_model", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--trl", type=Path, required=True, help="the folder that TRL is installed in")
    flag("--model", type=model_path, required=True, help="as --model of main.py")
    flag("--env-name", default="babyai-goto", help="as --env-name of main.py")
    flag("--micro", type=int, default=8, help="rows that TRL computes at once")
    flag("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="of computing")
    flag("--only", default="", metavar="WORD", help="rows that name this")
    args, flags = parser.parse_known_args()
    common = (
        f"--model {args.model} --env-name {args.env_name} --max-episode-steps 16".split() + flags
    )
    print(
        f"{'':32s}{'played':>8s}{'trained':>8s}{'collect':>9s}{'train':>9s}{'both':>9s}{'GB':>6s}"
    )
    rows = ROWS | (MERGED if "full" in flags else {})
    for name in filter(lambda name: args.only in name, rows):
        if name.startswith("TRL"):
            half = ["--bf16"] if args.dtype == "bfloat16" else []
            trainer = ["-m", "benchmarks.peers.trl_grpo", "--turns", "1000000", *half]
            trainer += ["--micro", str(args.micro), "--updates", str(UPDATES)]
        else:
            trainer = [str(MAIN), *OURS, "--dtype", args.dtype]
        lines, peak = measure([*trainer, *common, *rows[name]], args.trl)
        played = sum(line["batch/turns"] for line in lines)
        trained = TURNS * len(lines) if name.startswith("TRL") else played
        collect = sum(line["time/collect"] for line in lines)
        train = sum(line["time/total"] for line in lines) - collect
        costs = 1000 * collect / played, 1000 * train / trained
        shown = "".join(f"{cost:9.0f}" for cost in [*costs, sum(costs)])
        print(f"{name:32s}{played:8.0f}{trained:8.0f}{shown}{peak:6.1f}", flush=True)


def measure(words: list[str], trl: Path) -> tuple[list[dict], float]:
    """Return the metrics of a run's updates but the first, and its peak memory in GB.

    SystemExit: the run failed
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, *words, "--run-dir", str(run)]
        paths = os.environ | {"PYTHONPATH": str(trl)}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=paths)
        _, status, used = os.wait4(process.pid, 0)
        if code := os.waitstatus_to_exitcode(status):
            sys.exit(code)  # it has said why
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found = [line for line in map(json.loads, lines) if "time/total" in line]
    played = [0] + [line["turns"] for line in found]
    for line, before in zip(found, played, strict=False):
        line["batch/turns"] = line["turns"] - before
    return found[1:], used.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
