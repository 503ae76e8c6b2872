"""What an update of a real language model costs here and with TRL's GRPOTrainer, one after another.

    python -m benchmarks.peers.real_model --trl DIR --model runs/goto-clone [FLAGS OF main.py]

Every row makes updates of at least --turns turns, and shows means without the first: groups of 8
whole episodes of at most 16 turns, or n_env x e_len where there is a critic. TRL gets turns as rows
through `rollout_func` (`benchmarks.peers.turns`), and trains --turns of those that were played. An
environment with tools gives it whole episodes, one for each four of --turns. The columns are
seconds per 1,000 turns: of playing them, and of everything that is done with those that are
trained. GB is the peak of the process.

With more --updates the rows learn; `benchmarks.peers.learning` compares what they learnt.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from common.cli import MAIN, Parser
from envs import make_env
from envs.tools.tool_env import ToolEnv
from paper.runs import read_run
from run.earlier import model_path

N_ENV = 8
EPISODE = 4  # turns of a dialogue with tools, about
GRPO = ["--advantages", "grpo", "--group-size", str(N_ENV)]
GAE = ["--w-epoch", "0"]
NO_KL, MERGED = ["--kl-coef", "0"], ["--rows", "merged"]
ROWS = {
    "TRL": ["--beta", "0.04"],
    "GRPO": GRPO,
    "GRPO, transformers' generation": [*GRPO, "--engine", "transformers"],
    "TRL without KL": [],
    "GRPO without KL": [*GRPO, *NO_KL],
    "dual-discount GAE": GAE,
}
GPU_ROWS = {
    "TRL, vLLM's generation": ["--beta", "0.04", "--vllm"],
    "TRL without KL, vLLM's generation": ["--vllm"],
}
MERGED_ROWS = {
    "GRPO, merged turns": [*GRPO, *MERGED],
    "GRPO without KL, merged turns": [*GRPO, *MERGED, *NO_KL],
    "dual-discount GAE, merged turns": [*GAE, *MERGED],
}


def main() -> None:
    parser = Parser("benchmarks.peers.real_model", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--trl", type=Path, required=True, help="the folder that TRL is installed in")
    flag("--model", type=model_path, required=True, help="as --model of main.py")
    flag("--env-name", default="babyai-goto", help="as --env-name of main.py")
    flag("--micro", type=int, default=8, help="rows that TRL computes at once")
    flag("--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="of computing")
    flag("--lr", default="2e-5", help="learning rate of all rows")
    flag("--updates", type=int, default=3, help="of each row")
    flag("--turns", type=int, default=64, help="of an update, at least")
    flag("--steps", type=int, default=2, help="of the optimizer in an update")
    flag("--only", nargs="*", default=None, metavar="ROW", help="these rows")
    flag("--runs", type=Path, default=None, help="keep the runs in this directory")
    args, flags = parser.parse_known_args()
    common = f"--model {args.model} --env-name {args.env_name} --max-episode-steps 16".split()
    common += ["--lr", args.lr]
    rows = ROWS | (GPU_ROWS if torch.cuda.is_available() else {})
    rows |= MERGED_ROWS if "full" in flags else {}
    chosen = rows if args.only is None else args.only
    if args.updates < 2:
        parser.error("--updates must be from 2: the first one is left out")
    if unknown := [name for name in chosen if name not in rows]:
        parser.error(f"--only {unknown[0]}: the rows are {'; '.join(rows)}")
    print(
        f"{'':32s}{'played':>8s}{'trained':>8s}{'collect':>9s}{'train':>9s}{'both':>9s}{'GB':>6s}"
    )
    for name in chosen:
        with folder_of(args.runs, name) as run:
            peak = perform([*trainer(args, name), *common, *rows[name], *flags], run, args.trl)
            lines = read_run(run).metrics
        print(f"{name:32s}{costs(lines, trained_rows(args, name))}{peak:6.1f}", flush=True)


def trainer(args, name: str) -> list[str]:
    """Return the program of a row, with the flags that all its rows have."""
    if not name.startswith("TRL"):
        words = f"--engine vllm --ppo-epoch 1 --eval-interval 0 --num-updates {args.updates}"
        words += f" --n-env {N_ENV} --e-len {args.turns // N_ENV}"
        words += f" --minibatch {args.turns // args.steps} --dtype {args.dtype}"
        return [str(MAIN), *words.split()]
    rows = trained_rows(args, name) or args.turns // EPISODE
    half = ["--bf16"] if args.dtype == "bfloat16" else []
    words = f"--turns 1000000 --updates {args.updates} --batch-rows {rows}"
    words += f" --minibatches {args.steps} --micro {min(args.micro, rows // args.steps)}"
    return ["-m", "benchmarks.peers.trl_grpo", *words.split(), *half]


def trained_rows(args, name: str) -> int | None:
    """Return how many turns of a batch are trained, None if all that were played."""
    turns_are_rows = name.startswith("TRL") and not isinstance(make_env(args.env_name), ToolEnv)
    return args.turns if turns_are_rows else None


@contextlib.contextmanager
def folder_of(runs: Path | None, name: str):
    """Give the directory of a row's run, a temporary one without `runs`."""
    if runs is not None:
        yield runs / name.replace(",", "").replace("'", "").replace(" ", "-")
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "run"


def perform(words: list[str], run: Path, trl: Path) -> float:
    """Make a run. Returns its peak memory in GB.

    SystemExit: the run failed
    """
    command = [sys.executable, *words, "--run-dir", str(run)]
    paths = os.environ | {"PYTHONPATH": f"{trl}:{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=paths)
    _, status, used = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(code)  # it has said why
    return used.ru_maxrss / 2**20


def costs(lines: list[dict], rows: int | None) -> str:
    """Return the cells of a row, without the first update.

    rows: turns of a batch that are trained, None if all that were played
    """
    first, *lines = lines
    played = lines[-1]["turns"] - first["turns"]
    trained = rows * len(lines) if rows else played
    collect = sum(line["time/collect"] for line in lines)
    train = sum(line["time/total"] for line in lines) - collect
    seconds = 1000 * collect / played, 1000 * train / trained
    shown = "".join(f"{cost:9.1f}" for cost in [*seconds, sum(seconds)])
    return f"{played:8.0f}{trained:8.0f}{shown}"


if __name__ == "__main__":
    main()
