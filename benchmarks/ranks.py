"""What an update costs: as the batch grows, and divided between two ranks.

    python -m benchmarks.ranks

Real BabyAI turns of the embedded model, one OpenMP thread in each process. The growth is measured
in processor time, for the machine's other work would be measured with it otherwise.
"""

import os
import statistics
import subprocess
import sys
import time

from arguments import get_args
from benchmarks.run import babyai_batch, seconds
from ppo.distributed import make_ranks

N_ENVS = (8, 32, 128, 256)
ROUNDS = 5


def processor_seconds(function) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def bench_growth() -> None:
    """Processor time per turn of one epoch over batches of 8 turns from N environments.

    The sizes take turns, so that a machine whose speed drifts does not decide the ratios.
    """
    batches = {n_env: growing_batch(n_env) for n_env in N_ENVS}
    per_turn = {n_env: [] for n_env in N_ENVS}
    for _ in range(ROUNDS):
        for n_env, (agent, rollouts) in batches.items():
            turns = n_env * rollouts.e_len
            for _ in range(max(1, 512 // turns)):
                took = processor_seconds(lambda: agent.update(rollouts))  # noqa: B023
                per_turn[n_env].append(took / turns * 1e3)
    print("N, ms per turn, against N = 8 (target: within 10 %)")
    medians = {n_env: statistics.median(times) for n_env, times in per_turn.items()}
    for n_env, median in medians.items():
        print(f"{n_env:4d} {median:8.2f} {median / medians[N_ENVS[0]]:6.2f}x", flush=True)


def growing_batch(n_env: int):
    flags = ["--n-env", str(n_env), "--ppo-epoch", "1", "--minibatch", "64"]
    _, agent, rollouts = babyai_batch(flags)
    agent.update(rollouts)  # once without measuring
    return agent, rollouts


def update_seconds(zero_stage: int) -> float:
    """The median wall time of an update; in each process of a launcher."""
    flags = ["--n-env", "64", "--ppo-epoch", "1", "--zero-stage", str(zero_stage)]
    _, agent, rollouts = babyai_batch(flags, make_ranks(get_args(flags)))
    agent.update(rollouts)
    median = statistics.median(seconds(lambda: agent.update(rollouts)) for _ in range(5))
    print(median, flush=True)  # of the first rank alone
    return median


def launched(ranks: int, zero_stage: int) -> float:
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *launch, "-m", "benchmarks.ranks", str(zero_stage)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    env["CUDA_VISIBLE_DEVICES"] = ""  # ranks of a CPU, on any machine
    run = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    return float(run.stdout.split()[-1])


def bench_ranks() -> None:
    print("update of 512 turns: ranks, ZeRO stage, seconds, one rank / this")
    alone = launched(1, 0)
    for ranks, zero_stage in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3)):
        took = alone if ranks == 1 else launched(ranks, zero_stage)
        print(f"{ranks} {zero_stage} {took:7.2f} s {alone / took:6.2f}x", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        update_seconds(int(sys.argv[1]))
    else:
        bench_growth()
        bench_ranks()
