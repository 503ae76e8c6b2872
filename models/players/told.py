"""A player of the BabyAI rooms whose mission is told once: it walks as minigrid's bot does.

It picks up what its prompt says: the mission itself, its notes or a summary. If the prompt does not
tell, it picks up any of the things.
"""

import re

from minigrid.core.constants import COLOR_NAMES
from minigrid.envs.babyai.core.verifier import ObjDesc, PickupInstr
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal

from envs.games.told import RIGHT, TOLD, Told
from memory.summary import ASK
from models.players.reading import UNKNOWN, Writer, left_of

THING = re.compile(rf"({'|'.join(COLOR_NAMES)}) (key|ball|box)")


class Player:
    """The arguments after `rng` are those of `reading.Writer`."""

    def __init__(self, task: str, rng, **writing):
        self.env, self.rng = Told(task), rng
        self.writer = Writer(rng, **writing)

    def start(self) -> None:
        self.goal = self.guess = self.bot = self.action = None

    def respond(self, messages: list[dict]) -> tuple[str, str]:
        left = left_of(messages, TOLD, THING, RIGHT)
        if messages[-1]["content"].endswith(ASK):
            return self.writer.respond(messages, left, left, UNKNOWN, ())
        action = self.act(left[0] if left else None)
        remaining = left[1:] if left and action == "pick up" else left
        thought = " ".join(left[0]) if left else UNKNOWN
        return self.writer.respond(messages, left, remaining, thought, (action, action))

    def act(self, wanted: tuple[str, str] | None) -> str:
        """Return the next action on the way to a thing; None: to any of those that lie there."""
        level = self.env.level
        if level.carrying:  # full hands pick up nothing
            self.goal = self.guess = None
            return "turn right" if level.grid.get(*level.front_pos) else "drop"
        if wanted is None:
            there = [(t.color, t.type) for t in level.grid.grid if t and t.can_pickup()]
            self.guess = wanted = self.guess or there[self.rng.integers(len(there))]
        if wanted != self.goal:
            self.goal, self.action, self.bot = wanted, None, self.walker(wanted)
        chosen = int(self.bot.replan(self.action))
        if chosen >= len(self.env.actions):  # it considers the mission done, and plans anew
            self.goal, chosen = None, self.env.actions.index("turn right")
        self.action = level.actions(chosen)
        return self.env.actions[chosen]

    def walker(self, goal: tuple[str, str]) -> BabyAIBot:
        """Return minigrid's bot with the instruction to pick up a thing."""
        level = self.env.level
        level.instrs = PickupInstr(ObjDesc(goal[1], goal[0]))
        level.instrs.reset_verifier(level)
        bot = BabyAIBot(level)
        bot.stack = [subgoal for subgoal in bot.stack if not isinstance(subgoal, DropSubgoal)]
        return bot
