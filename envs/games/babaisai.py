"""BabaIsAI: a grid puzzle whose rules are text blocks on the map, as a text environment.

`envs.games.baba_game` is the game itself, and `envs.games.baba_levels` generates its levels. Rules
and texts follow the BALROG benchmark, oddities included, with one exception: when nothing is YOU
any more, the episode fails instead of continuing in a new level.
"""

import numpy as np

from common.plugins import UserError
from envs.actions import combine
from envs.games.baba_game import MAX_STEPS, Level
from envs.games.baba_levels import PLANS, generate
from envs.games.baba_picture import draw
from envs.text_env import THINK_ACT, TextEnv

ACTIONS = """\
idle: wait for one turn,
up: move one step up,
right: move one step to the right,
down: move one step down,
left: move one step to the left"""
TIPS = """\
- Look at all objects and blocks, and work out which rule is in your way or missing.
- Plan which block to push, from which side, before you move: you cannot pull a block back.
- If you are stuck, break a rule or make one. A new rule may surprise you: it can change what \
wins, what stops you and even who you are."""
SYSTEM = f"""\
You play a puzzle on a grid. Its rules are written on the map in text blocks, and you can change \
them. Each turn you take one of these actions:
{ACTIONS}.

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
{TIPS}

PLAY!"""


# accepted in front of a direction
VERBS = "go move step walk push take_step take_one_step"


class BabaIsAI(TextEnv):
    """One of `tasks`. Reaching a WIN object is success; losing the last YOU object is failure."""

    family = "babaisai"
    tasks = tuple(PLANS)
    binary_reward = True
    actions = ("idle", "up", "right", "down", "left")
    default_action = "idle"
    near_misses = {
        way: [f"{way}ward", f"{way}wards", *combine(VERBS, f"{way} to_{way} {way}ward {way}wards")]
        for way in ("up", "right", "down", "left")
    } | {"idle": ["wait", "stay", "stay still", "noop", "no op", "do nothing", "pass"]}
    instruction = THINK_ACT.removesuffix(".") + ": idle, up, right, down, left"
    prompt_fields = {"actions": lambda env: ACTIONS, "tips": lambda env: TIPS}

    def __init__(self, task: str, format_penalty: float = 0.1, max_episode_steps: int = MAX_STEPS):
        if task not in self.tasks:
            raise UserError(f"unknown BabaIsAI task {task!r}; choices: {', '.join(self.tasks)}")
        super().__init__(max_episode_steps, format_penalty)
        self.task = task

    def _start(self) -> str:
        width, height, cells = generate(self.task, self.np_random)
        self.level = Level.from_cells(width, height, cells)
        self.level.max_steps = self.max_episode_steps
        return self.level.text()

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        reward, _ = self.level.step(action)  # TextEnv applies the time limit
        terminated = reward != 0 or self.level.you is None
        return self.level.text(), reward, terminated, reward > 0

    def system_prompt(self) -> str:
        return SYSTEM

    def render(self) -> np.ndarray:
        return draw(self.level)
