"""What each memory lets a scripted player do in the environments that need one.

    python -m benchmarks.memories                       all tasks, some minutes
    python -m benchmarks.memories errands-20 told-pickup-2

The player acts well on what its prompt says, and guesses what it does not say. It writes notes and
summaries well, and does not read its earlier thoughts. So the table shows what a memory makes
possible, and a row of a window is what a policy reaches that carries nothing from turn to turn.
"""

from importlib import import_module

import numpy as np

from common.cli import Parser
from envs.pool.evaluation import all_evaluation_seeds
from models.remembering import episode, remembering
from ppo.evaluation import wilson_interval

TASKS = [f"errands-{task}" for task in ("6", "12", "20", "60", "200")]
TASKS += [f"told-{task}" for task in ("pickup-2", "pickup-3-16x16", "pickup-5-16x16")]
MEMORIES = [("window", 0), ("window", 1), ("window", 8), ("action", 8), ("periodic", 8),
            ("full", 0), ("notes", 1), ("summary", 16)]  # fmt: skip


def main() -> None:
    parser = Parser("benchmarks.memories", description=__doc__.splitlines()[0])
    parser.add_argument(
        "tasks", nargs="*", metavar="TASK", help=f"{', '.join(TASKS)}; default: all"
    )
    parser.add_argument("--episodes", type=int, default=200, help="of each row")
    args = parser.parse_args()
    if unknown := set(args.tasks) - set(TASKS):
        parser.error(f"unknown task {', '.join(unknown)}; choices: {', '.join(TASKS)}")
    print(f"{'task':20s} {'memory':12s} {'success':>24s} {'return':>8s} {'turns':>7s}")
    for task in args.tasks or TASKS:
        for name, length in MEMORIES:
            print(row(task, name, length, args.episodes), flush=True)


def row(task: str, name: str, length: int, episodes: int) -> str:
    """Return a line about the evaluation episodes of a task with a memory."""
    family, _, kind = task.partition("-")
    player = import_module(f"models.players.{family}").Player(kind, np.random.default_rng(0))
    env, memory = remembering(player.env, name, length)
    wins, earned, turns = 0, 0.0, 0
    for seed in all_evaluation_seeds(episodes):
        steps = [step for _, _, step in episode(player, env, memory, seed)]
        wins += steps[-1].success
        earned += sum(step.reward for step in steps)
        turns += len(steps)
    low, high = wilson_interval(wins, episodes)
    shown = f"{name} {length}" if name != "full" else name
    success = f"{wins / episodes:.3f} [{low:.3f}, {high:.3f}]"
    return f"{task:20s} {shown:12s} {success:>24s} {earned / episodes:8.3f} {turns / episodes:7.1f}"


if __name__ == "__main__":
    main()
