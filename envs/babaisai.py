"""BabaIsAI: a grid puzzle whose rules are text blocks on the map, told in words.

The game itself is in envs.baba_game, its levels are drawn by envs.baba_levels. Rules and texts
follow the BALROG benchmark, oddities included, with one exception: when nothing is YOU any more the
episode fails instead of going on in a new level.
"""

import numpy as np

from envs.baba_game import MAX_STEPS, Level, draw
from envs.baba_levels import TASKS, generate
from envs.text_env import THINK_ACT, TextEnv

SYSTEM = """\
You play a puzzle on a grid. Its rules are written on the map in text blocks, and you can change \
them. Each turn you take one of these actions:
idle: wait for one turn,
up: move one step up,
right: move one step to the right,
down: move one step down,
left: move one step to the left.

An observation will follow: the rules that hold now, then every object and every text block (rule \
`word`) with its position as seen from the object that you control, which is not listed itself.

How the game works:
- Three neighbouring blocks that read SUBJECT IS PROPERTY, from left to right or from top to \
bottom, make a rule. It holds for as long as they stand like that.
- You move what IS YOU. If nothing is YOU any more, you have lost.
- You win by stepping onto an object that IS WIN. Having no WIN rule, make one first.
- An object that IS STOP is in the way. You walk over all other objects; you cannot push them.
- Stepping into a text block pushes it, and the blocks behind it, unless the edge of the map or \
something that IS STOP is in the way. A block at the edge moves only along the edge.

Tips:
- Look at all objects and blocks, and work out which rule is in your way or missing.
- Plan which block to push, from which side, before you move: you cannot pull a block back.
- If you are stuck, break a rule or make one. A new rule may surprise you: it can change what \
wins, what stops you and even who you are.

PLAY!"""


class BabaIsAI(TextEnv):
    """One of `TASKS`. Success is reaching what is WIN, failure is having nothing that is YOU.

    max_episode_steps: None is the benchmark's limit of 100 turns
    """

    family = "babaisai"
    instruction = THINK_ACT.removesuffix(".") + ": idle, up, right, down, left"

    def __init__(
        self,
        task: str,
        format_penalty: float = 0.1,
        max_episode_steps: int | None = None,
        binary_reward: bool = True,
    ):
        if task not in TASKS:
            raise ValueError(f"unknown BabaIsAI task {task!r}; choices: {', '.join(TASKS)}")
        limit = MAX_STEPS if max_episode_steps is None else max_episode_steps
        super().__init__(limit, binary_reward, format_penalty)
        self.task = task

    def _start(self) -> str:
        self.level = Level.from_cells(*generate(self.task, self.np_random))
        self.level.max_steps = self.max_episode_steps
        return self.level.text()

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        reward, _ = self.level.step(action)  # the time limit is kept by TextEnv
        terminated = reward != 0 or self.level.you is None
        return self.level.text(), reward, terminated, reward > 0

    def system_prompt(self) -> str:
        return SYSTEM

    def render(self) -> np.ndarray:
        return draw(self.level)
