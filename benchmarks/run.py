"""Prints a table of ratios: each line compares two ways of doing the same work.

    make bench                         all comparisons, a few minutes
    python -m benchmarks.run score     one of them: estimators, merged, update, score, top, envs

The two ways are timed in pairs, so that a machine whose speed drifts does not bias a ratio.
"""

import torch

from benchmarks.environments import bench_envs
from benchmarks.training import (
    bench_estimators,
    bench_merged,
    bench_score,
    bench_top,
    bench_update,
)
from common.cli import Parser

BENCHMARKS = {
    "estimators": bench_estimators,
    "merged": bench_merged,
    "update": bench_update,
    "score": bench_score,
    "top": bench_top,
    "envs": bench_envs,
}


def main() -> None:
    parser = Parser("benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"{', '.join(BENCHMARKS)}; default: all")
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"unknown benchmark {', '.join(unknown)}; choices: {', '.join(BENCHMARKS)}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    print(f"{'what: A / B':62s} {'A':>12s} {'B':>12s} {'A / B':>9s}  target")
    for name in names:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
