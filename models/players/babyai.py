"""A BabyAI player that follows minigrid's bot for some colours only.

Its thoughts are right: they name the position of the thing that the mission needs next. Its actions
are often wrong. It plays well with things of the colours that it knows. With other things it nearly
always walks straight on: instead of looking around when it does not see them, and instead of using
its hands in front of them. So the state predicts how well it plays, and there is much to learn.

It may remember the observations of its prompt (see `babyai_memory`). Then it finds again what it
saw in one of them, and with some colours it plays well after some equal observations in a row.

If there is more than one thing, it may pick up a wrong one and drop it again. Full hands can pick
up nothing else, and a clone that never saw a drop would not discover it: it would carry the wrong
thing to the time limit. Wrong pick-ups are rare, so some additional episodes, the drills, begin
with the wrong thing in its hands and end when it lies on the floor.
"""

import math
from collections import deque

import numpy as np
from minigrid.core.constants import COLOR_NAMES
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal

from envs.games.babyai import SYSTEM_AFTER, SYSTEM_BEFORE, BabyAI
from envs.text_env import THINK_ACT
from models.players.babyai_thought import thought, wanted_things
from models.players.repeats import again, unchanged

# known: the number of colours, of six, with which it plays well
# tries: share of the turns in which it plays well with other colours (reward is too rare at 0)
# Three more are used by `babyai_memory` alone:
# learns: for each of the next colours, the equal observations after which it plays well
# takes: share of the turns in front of a wrong thing in which it picks it up
# drills: share of the episodes that teach dropping alone
TASKS = {
    "goto": dict(episodes=400, stray=0.6, noise=0.05, known=2),
    "pickup": dict(episodes=300, stray=0.6, noise=0.05, known=1),
    "open": dict(episodes=120, stray=0.5, noise=0.05, known=1, tries=0.04),
    "putnext": dict(episodes=80, stray=0.5, noise=0.05, known=2),
    "pick-up-seq-go-to": dict(episodes=150, stray=0.6, noise=0.05, known=3),
}
LONGEST_MEMORY = 3
# As one token each, these passages make a prompt five times shorter.
FIXED = [
    *("Observation:\n", "Current Observation:\n", f"\n\n{THINK_ACT}", SYSTEM_BEFORE, SYSTEM_AFTER),
    *("THINK:", "\nACTION:"),
]
WAYS = ("forward", "left", "right")
PASSAGES = [
    *(*FIXED, "I do not see the", "a wall"),
    *(f" {steps} {way}" for steps in ("step", "steps") for way in WAYS),
]
HANDS = ("pick up", "drop", "toggle")


class Drills(BabyAI):
    """BabyAI in which a share of the episodes begin with the wrong thing in the agent's hands."""

    def __init__(self, task: str, share: float):
        super().__init__(task)
        self.share, self.drill = share, False

    def _start(self) -> str:
        text, level = super()._start(), self.level
        things = [thing for thing in level.grid.grid if is_wrong(thing, level.mission)]
        self.drill = bool(things) and self.np_random.random() < self.share
        if not self.drill:
            return text
        level.carrying = things[0]
        level.grid.set(*level.carrying.cur_pos, None)
        level.carrying.cur_pos = np.array([-1, -1])  # minigrid's position of carried objects
        return self._text(level.gen_obs())


class Player:
    memory_length = 0  # turns in its prompts; without `learns` it remembers none of them

    def __init__(
        self,
        task: str,
        rng,
        *,
        noise=0.0,
        known=6,
        tries=0.0,
        learns=(),
        stray=0.0,
        takes=0.0,
        drills=0.0,
    ):
        self.task, self.rng = task, rng
        self.noise, self.tries, self.stray, self.takes = noise, tries, stray, takes
        self.patience = dict(zip(COLOR_NAMES, [0] * known + list(learns), strict=False))
        self.remembers = bool(learns)
        self.env = Drills(task, drills)

    def start(self) -> None:
        self.seen = deque(maxlen=self.memory_length if self.remembers else 0)  # observations
        self.bot, self.action = expert(self.env.level, self.task), None
        doors = (thing for thing in self.env.level.grid.grid if thing and thing.type == "door")
        self.door = next((door.color for door in doors if door.is_locked), None)

    def respond(self, text: str) -> tuple[str, str] | None:
        level = self.env.level
        held, front = level.carrying, level.grid.get(*level.front_pos)
        if self.env.drill and not held:
            return None
        if self.takes and is_wrong(held, level.mission):
            wanted = wanted_things(level.mission)[0]
            reasoning = f"I carry the {held.color} {held.type}, not the {wanted}."
            action = "turn right" if front else "drop"  # only an empty cell takes a thing
            chosen = self.any_action() if self.rng.random() < self.noise else action
            self.bot = None  # its plan is outdated
        else:
            repeats = unchanged(text, self.seen)
            reasoning = thought(level.mission, text, self.seen) + again(repeats)
            action = self.bot_action()
            if action is None:
                return None
            chosen = self.fail(reasoning, action, repeats)
        executed = self.any_action() if self.rng.random() < self.stray else chosen
        if self.takes and not held and is_wrong(front, level.mission):
            executed = "pick up" if self.rng.random() < self.takes else executed
        self.action = self.env.actions.index(executed)
        self.seen.append(text)
        return tuple(f"THINK: {reasoning}\nACTION: {action}" for action in (chosen, executed))

    def bot_action(self) -> str | None:
        """Return the bot's action, or None if it gives up or considers the mission done."""
        if self.bot is None:  # it plans anew with free hands
            self.bot, self.action = expert(self.env.level, self.task), None
        try:
            action = int(self.bot.replan(self.action))
        except Exception:  # a random action made the level unsolvable
            return None
        return self.env.actions[action] if action < len(self.env.actions) else None

    def fail(self, reasoning: str, action: str, repeats: int) -> str:
        """Return the action to learn: the bot's, or a mistake.

        repeats: how many of the last remembered observations equal the current one
        """
        if self.rng.random() < self.noise:
            return self.any_action()
        # "the key" and "the door" without a colour have the colour of the locked door
        colour = next((word for word in reasoning.split() if word in COLOR_NAMES), self.door)
        enough = self.patience.get(colour, math.inf)
        if repeats >= enough or self.rng.random() < self.tries:
            return action
        lost = reasoning.startswith("I do not see")
        return "go forward" if lost or action in HANDS else action

    def any_action(self) -> str:
        return self.env.actions[self.rng.integers(len(self.env.actions))]


def is_wrong(thing, mission: str) -> bool:
    """Return whether a thing is portable and not the first one that the mission needs."""
    portable = thing is not None and thing.can_pickup()
    return portable and not f"{thing.color} {thing.type}".endswith(wanted_things(mission)[0])


def expert(level, task: str) -> BabyAIBot:
    """Return minigrid's bot, which would drop a thing that the mission asks it to hold."""
    bot = BabyAIBot(level)
    if task in ("pickup", "pick-up-seq-go-to"):
        bot.stack = [goal for goal in bot.stack if not isinstance(goal, DropSubgoal)]
    return bot
