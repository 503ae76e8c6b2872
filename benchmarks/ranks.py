"""Times an update as the batch grows, and when two ranks share it.

    python -m benchmarks.ranks

The turns are BabyAI turns of the embedded model, and each process has one OpenMP thread. The growth
is measured in processor time, because wall time would include other work of the machine.
"""

import statistics
from functools import partial

from benchmarks.common import Stopwatch, run_python, seconds
from benchmarks.training import scored_batch
from common.cli import Parser

N_ENVS = (8, 32, 128, 256)
ROUNDS = 5


def main() -> None:
    parser = Parser("benchmarks.ranks", description=__doc__.splitlines()[0])
    only = "only time an update, with this ZeRO stage, on the ranks of the launcher"
    parser.add_argument("zero_stage", nargs="?", type=int, help=only)
    zero_stage = parser.parse_args().zero_stage
    if zero_stage is not None:
        return print(update_seconds(zero_stage), flush=True)  # only the first rank prints
    bench_growth()
    bench_ranks()


def bench_growth() -> None:
    """Print the processor time per turn of one epoch over 8 turns of each of N environments.

    The sizes alternate, so that a machine whose speed drifts does not bias the ratios.
    """
    batches = {n_env: growing_batch(n_env) for n_env in N_ENVS}
    per_turn = {n_env: [] for n_env in N_ENVS}
    for _ in range(ROUNDS):
        for n_env, (agent, rollouts) in batches.items():
            turns = n_env * rollouts.e_len
            for _ in range(max(1, 512 // turns)):
                with Stopwatch() as took:
                    agent.update(rollouts, agent.plan(rollouts))
                per_turn[n_env].append(took.processor_seconds / turns * 1e3)
    print(f"N, ms per turn, relative to N = {N_ENVS[0]} (target: within 10 %)")
    medians = {n_env: statistics.median(times) for n_env, times in per_turn.items()}
    for n_env, median in medians.items():
        print(f"{n_env:4d} {median:8.2f} {median / medians[N_ENVS[0]]:6.2f}x", flush=True)


def growing_batch(n_env: int):
    flags = ["--n-env", str(n_env), "--ppo-epoch", "1", "--minibatch", "64"]
    agent, rollouts = scored_batch(flags)
    agent.update(rollouts, agent.plan(rollouts))  # the first update is slower
    return agent, rollouts


def bench_ranks() -> None:
    print("update of 512 turns: ranks, ZeRO stage, seconds, speedup over one rank")
    alone = launched(1, 0)
    for ranks, zero_stage in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3)):
        took = alone if ranks == 1 else launched(ranks, zero_stage)
        print(f"{ranks} {zero_stage} {took:7.2f} s {alone / took:6.2f}x", flush=True)


def launched(ranks: int, zero_stage: int) -> float:
    """Return the seconds of an update on `ranks` processes, which always use the CPU."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    variables = dict(OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", CUDA_VISIBLE_DEVICES="")
    words = [*launch, "-m", "benchmarks.ranks", str(zero_stage)]
    return float(run_python(words, variables))


def update_seconds(zero_stage: int) -> float:
    """Return the median wall time of an update. Every rank of the launcher calls this."""
    flags = ["--n-env", "64", "--ppo-epoch", "1", "--zero-stage", str(zero_stage)]
    agent, rollouts = scored_batch(flags)
    update = partial(agent.update, rollouts, agent.plan(rollouts))
    update()  # the first update is slower
    return statistics.median(seconds(update) for _ in range(5))


if __name__ == "__main__":
    main()
