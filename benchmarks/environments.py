"""Times environments with random actions, without a model. `benchmarks.run envs` starts it."""

from collections.abc import Callable
from functools import partial

import torch
from minigrid.minigrid_env import MiniGridEnv

from benchmarks.common import Stopwatch, compare
from envs import make_env

STEPS = {  # environment -> timed steps
    "babyai-goto": 3000,
    "babyai-open": 3000,
    "baba-goto_win": 3000,
    "baba-two_room-goto_win": 3000,
    "crafter": 300,
}


def bench_envs() -> None:
    """Print the steps per second of one process, including text and resets."""
    print()
    for name, steps in STEPS.items():
        play = random_turns(make_env(name), steps)
        with Stopwatch() as took:
            play()
        print(f"{name:30s} {steps / took.seconds:10,.0f} steps/s", flush=True)
    for name in ("babyai-goto", "babyai-open"):
        minigrid_view = make_env(name)
        level = minigrid_view.level
        level.gen_obs = partial(MiniGridEnv.gen_obs, level)
        slow, fast = random_turns(minigrid_view, 1000), random_turns(make_env(name), 1000)
        compare(f"1,000 turns of {name}: minigrid's view / ours", slow, fast, pairs=9)


def random_turns(env, steps: int) -> Callable[[], None]:
    """Return a function that plays `steps` random turns, the same ones in each call."""
    rng = torch.Generator().manual_seed(0)
    choices = torch.randint(len(env.actions), (steps,), generator=rng).tolist()

    def play() -> None:
        env.reset(seed=0)
        for choice in choices:
            _, _, terminated, truncated, _ = env.step(f"THINK: go.\nACTION: {env.actions[choice]}")
            if terminated or truncated:
                env.reset()

    return play
