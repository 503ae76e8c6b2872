"""A BabyAI player that uses minigrid's bot, and follows it only for some colours.

Its thoughts are right: they say where the thing is that the mission wants next. Its actions are
often wrong. It plays well with things of the colours that it knows. With other things it (nearly)
always walks straight on: when it does not see them, instead of looking around, and in front of
them, instead of using its hands. So the state shows how good it is, and there is much to learn.

It may remember the observations that a prompt shows (see `babyai_memory`). What it saw in one of
them it finds again, and with some colours it plays well once it has seen the same for some turns.

Where there is more than one thing, it may now and then pick up a wrong one, and drop it again. With
full hands nothing else can be picked up, and a clone that never saw a thing dropped would not find
out by itself: it would carry the wrong one to the time limit. That happens seldom on the way, so
further episodes may begin with the wrong thing in its hands and end when it lies on the floor.
"""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from minigrid.core.constants import COLOR_NAMES
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal

from envs.games.babyai import SYSTEM_AFTER, SYSTEM_BEFORE, BabyAI
from envs.text_env import THINK_ACT
from models.players.repeats import again, unchanged

# known: number of colours, of six, with which it plays well
# tries: share of the turns in which it plays well with others, lest reward be too rare
# Three more are for `babyai_memory` alone:
# learns: for the next colours, after how many turns in which it saw the same it plays well
# takes: share of the turns in front of a wrong thing in which it picks this up
# drills: share of the episodes that are about dropping alone
# The numbers give a zero-shot success close to that of the paper's 3B model.
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
    """BabyAI in which some episodes begin with a thing in the hands that the mission does not want
    there. share: of the episodes"""

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
        level.carrying.cur_pos = np.array([-1, -1])  # as minigrid says of what is carried
        return self._text(level.gen_obs())


class Player:
    memory_length = 0  # turns that its prompts show; without `learns` it remembers none of them

    def __init__(self, task: str, rng, *, noise=0.0, known=6, tries=0.0, learns=(), stray=0.0,
                 takes=0.0, drills=0.0):  # fmt: skip
        self.task, self.rng = task, rng
        self.noise, self.tries, self.stray, self.takes = noise, tries, stray, takes
        self.patience = dict(zip(COLOR_NAMES, [0] * known + list(learns), strict=False))
        self.remembers = bool(learns)
        self.env = Drills(task, drills)

    def start(self) -> None:
        self.seen = deque(maxlen=self.memory_length if self.remembers else 0)  # old observations
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
            said = f"I carry the {held.color} {held.type}, not the {wanted}."
            wanted = "turn right" if front else "drop"  # it can be put on empty floor alone
            chosen = self.any_action() if self.rng.random() < self.noise else wanted
            self.bot = None  # its plan was another one
        else:
            in_vain = unchanged(text, self.seen)
            said = thought(level.mission, text, self.seen) + again(in_vain)
            wanted = self.bot_wants()
            if wanted is None:
                return None
            chosen = self.fail(said, wanted, in_vain)
        executed = self.any_action() if self.rng.random() < self.stray else chosen
        if self.takes and not held and is_wrong(front, level.mission):
            executed = "pick up" if self.rng.random() < self.takes else executed
        self.action = self.env.actions.index(executed)
        self.seen.append(text)
        return tuple(f"THINK: {said}\nACTION: {action}" for action in (chosen, executed))

    def bot_wants(self) -> str | None:
        """Return the bot's action, None if it gives up or believes that it is done."""
        if self.bot is None:  # it begins anew with free hands
            self.bot, self.action = expert(self.env.level, self.task), None
        try:
            wanted = int(self.bot.replan(self.action))
        except Exception:  # a random action made the level unsolvable
            return None
        return self.env.actions[wanted] if wanted < len(self.env.actions) else None

    def fail(self, said: str, wanted: str, in_vain: int) -> str:
        """Return the action to learn: what the bot wants, or a failing.

        in_vain: number of the last turns that it remembers and in which it saw the same as now
        """
        if self.rng.random() < self.noise:
            return self.any_action()
        # "the key" and "the door" without a colour have the locked door's
        colour = next((word for word in said.split() if word in COLOR_NAMES), self.door)
        enough = self.patience.get(colour, math.inf)
        if in_vain >= enough or self.rng.random() < self.tries:
            return wanted
        lost = said.startswith("I do not see")
        return "go forward" if lost or wanted in HANDS else wanted

    def any_action(self) -> str:
        return self.env.actions[self.rng.integers(len(self.env.actions))]


def is_wrong(thing, mission: str) -> bool:
    """Whether it can be picked up, and is not what the mission wants to be held first."""
    portable = thing is not None and thing.can_pickup()
    return portable and not f"{thing.color} {thing.type}".endswith(wanted_things(mission)[0])


def expert(level, task: str) -> BabyAIBot:
    """Return minigrid's bot, without its habit of dropping what the mission wants it to hold."""
    bot = BabyAIBot(level)
    if task in ("pickup", "pick-up-seq-go-to"):
        bot.stack = [goal for goal in bot.stack if not isinstance(goal, DropSubgoal)]
    return bot


def thought(mission: str, text: str, seen: Sequence[str] = ()) -> str:
    """Say where the thing is that the mission wants next, in words of the observation.

    seen: earlier observations, the latest last; the thing may have been in sight in one of them
    """
    lines = text.split("\n")
    carried = next((line[12:] for line in lines if line.startswith("You carry a ")), None)
    wanted = wanted_things(mission)
    if carried and len(wanted) > 1:
        wanted = wanted[1:] if carried.endswith(wanted[0]) else wanted[:1]
    name = wanted[0]
    if carried and carried.endswith(name):
        return f"I carry the {name}."
    if where := place(name, text):
        return f"the {name} is {where}."
    where = next(filter(None, (place(name, old) for old in reversed(seen))), None)
    return f"I saw the {name} {where}." if where else f"I do not see the {name}."


def place(name: str, text: str) -> str | None:
    """Return where an observation says that a thing is: of several, the first; None if nowhere."""
    for line in text.split("\n"):
        words = line.split()
        if words[0] != "a":
            continue
        for cut in range(2, len(words)):
            if " ".join(words[1:cut]).endswith(name):
                return " ".join(words[cut:])
    return None


def wanted_things(mission: str) -> list[str]:
    """Return the things of a mission, without articles, in the order in which they are needed."""
    if " after you " in mission:
        later, first = mission.split(" after you ")
        mission = f"{first}, then {later}"
    if mission.startswith("open "):
        return ["key", "door"]
    for words in ("pick up ", "go to ", "put ", "then "):
        mission = mission.replace(words, "")
    parts = mission.replace(" next to ", ", ").split(", ")
    return [part.split(" ", 1)[1] for part in parts]
