"""A Crafter player that decides by the observation's text and its own last action.

It drinks, eats, fights and sleeps when it must, picks a sapling, and works its way from wood to
stone tools and a furnace. It walks in a straight line to a thing "3 steps to your north-west". Its
thoughts name the thing that it wants. Its actions are often wrong: mostly it walks on instead of
using its hands on the thing that it faces, and now and then it acts at random.
"""

import re

from envs.games.crafter import Crafter
from envs.games.crafter_actions import ACTIONS
from envs.games.crafter_text import ACHIEVEMENTS, OFFSETS, STATS, THINGS, key, system_prompt
from envs.text_env import THINK_ACT

# clumsy: share of the turns in which it walks on instead of using its hands
# `noise` and `clumsy` change the learnt actions, not the executed ones, so demonstrations get far.
TASKS = {"crafter": dict(episodes=240, max_steps=300, stray=0.3, noise=0.1, clumsy=0.8)}
MISSING = "\n1. " + ACHIEVEMENTS[0]
SYSTEM_BEFORE, _, AFTER = system_prompt(set()).partition(MISSING)
SYSTEM_AFTER = "\n\n" + AFTER.partition("\n\n")[2]
WAYS = ("north-west", "north-east", "south-west", "south-east", *OFFSETS)
LONGEST_MEMORY = 1
FARTHEST = 7  # steps to the corner of the view
# As one token each, these passages make a prompt many times shorter. A thing and its position are
# the same tokens in observation and thought; otherwise a clone copies half of them wrong.
PASSAGES = [
    *(SYSTEM_BEFORE, SYSTEM_AFTER, f"\n\n{THINK_ACT}"),
    *("Current Observation:\nYour status:\n- health: ", "Observation:\n"),
    *("THINK: ", "I face ", "I see no ", "I can", "\nACTION:"),
    *("\n\nYou have nothing in your inventory.", "\n\nYour inventory:", "You see:", "\n- "),
    *("\n\nYou face ", " at your front."),
    *(f"/9\n- {name}: " for name in STATS[1:]),
    *(f" {name}" for name in dict.fromkeys([*ACTIONS, *ACHIEVEMENTS])),
    *(f"{',' * (n > 1)}\n{n}." for n in range(1, len(ACHIEVEMENTS) + 1)),  # their list
    *(f" {n} steps to your {way}" for n in range(1, FARTHEST + 1) for way in WAYS),
    *THINGS,
]
OPPOSITE = dict(north="south", south="north", west="east", east="west")
FREE = ("grass", "sand", "path")
TOOLS = ("wood_pickaxe", "wood_sword", "stone_pickaxe", "stone_sword")


class Player:
    def __init__(self, task: str, rng, noise=0.0, clumsy=0.0, stray=0.0, max_steps=300):
        self.rng, self.noise, self.clumsy, self.stray = rng, noise, clumsy, stray
        self.env = Crafter(max_episode_steps=max_steps)

    def start(self) -> None:
        self.last = "Noop"

    def respond(self, text: str) -> tuple[str, str]:
        reasoning, right = self.decide(Sight(text), self.env.world.unlocked)
        self.last = self.any_action() if self.rng.random() < self.stray else right
        actions = (self.fail(right), self.last)
        return tuple(f"THINK: {reasoning}\nACTION: {action}" for action in actions)

    def fail(self, right: str) -> str:
        """Return the action to learn: the right one, or a mistake."""
        if self.rng.random() < self.noise:
            return self.any_action()
        return self.any_move() if right == "Do" and self.rng.random() < self.clumsy else right

    def any_action(self) -> str:
        return self.env.actions[self.rng.integers(len(self.env.actions))]

    def any_move(self) -> str:
        return f"Move {list(OFFSETS)[self.rng.integers(4)].title()}"

    def decide(self, sight: "Sight", unlocked: set[str]) -> tuple[str, str]:
        """Return the thought and the right action."""
        missing = {key(name) for name in ACHIEVEMENTS} - unlocked
        action = sight.at_once(missing)
        if action:
            return f"I can {action}.", action
        thing = sight.wanted(missing)
        if sight.front == thing:
            return f"I face {thing}.", "Do"
        if thing in sight.seen:
            steps, where = sight.seen[thing]
            return f"{thing} {steps} steps to your {where}.", self.walk(sight, where.split("-"))
        return f"I see no {thing}.", self.walk(sight, [])

    def walk(self, sight: "Sight", ways: list[str]) -> str:
        """Return an action towards a thing in the directions `ways`, or straight on if empty.

        It goes around obstacles or removes them.
        """
        last = self.last.removeprefix("Move ").lower()
        blocked = last in OFFSETS and sight.front not in FREE
        if blocked and (last in ways or not ways):
            if sight.breaks(sight.front):
                return "Do"
            if sight.front in ("water", "lava") and sight.has("stone"):
                return "Place Stone"
        ways = ways or [last] * (last in OFFSETS)
        closed = {last} if blocked else set()
        steps, where = sight.seen.get("lava", (9, ""))
        if steps == 1:
            closed.add(where)
        ways = [way for way in ways if way not in closed]
        if not ways:
            closed.add(OPPOSITE.get(last))
            ways = [way for way in OFFSETS if way not in closed]
        return f"Move {ways[self.rng.integers(len(ways))].title()}"


class Sight:
    """The content of an observation.

    status: health, food, ... and each item of the inventory -> number
    seen: thing -> (steps, direction) of the nearest one
    front: the thing that the player faces
    """

    def __init__(self, text: str):
        self.status = {name: int(n) for name, n in re.findall(r"- (\w+): (\d)", text)}
        lines = re.findall(r"- (\w+) (\d+) steps to your (\S+)", text)
        self.seen = {thing: (int(steps), where) for thing, steps, where in lines}
        self.front = re.search(r"You face (\w+)", text)[1]

    def has(self, item: str, n: int = 1) -> bool:
        return self.status.get(item, 0) >= n

    def near(self, thing: str) -> bool:
        """Return whether a thing is on one of the eight neighbouring cells."""
        steps, where = self.seen.get(thing, (9, ""))
        return steps == 1 or (steps == 2 and "-" in where)

    def breaks(self, thing: str) -> bool:
        """Return whether hitting or mining a thing removes it."""
        if thing in ("stone", "coal"):
            return self.has("wood_pickaxe")
        return thing in ("tree", "cow", "zombie", "skeleton")

    def next_tool(self) -> str | None:
        return next((tool for tool in TOOLS if not self.has(tool)), None)

    def at_once(self, missing: set[str]) -> str | None:
        """Return an action to take right here, to make, place or sleep, or None."""
        tool, enemy = self.next_tool(), "zombie" in self.seen or "skeleton" in self.seen
        if not enemy and not self.has("energy", 9 if "wake_up" in missing else 2):
            return "Sleep"
        if self.has("sapling") and self.front == "grass":
            return "Place Plant"
        if tool and self.ready(tool) and self.near("table"):
            return f"Make {tool.replace('_', ' ').title()}"
        if tool and self.ready(tool) and self.has("wood", 4) and "table" not in self.seen:
            return "Place Table" if self.front in FREE else None
        if self.front not in FREE:
            return None
        if "place_stone" in missing and self.has("stone"):
            return "Place Stone"
        return "Place Furnace" if "place_furnace" in missing and self.has("stone", 4) else None

    def ready(self, tool: str) -> bool:
        return self.has("wood") and (self.has("stone") or "wood" in tool)

    def wanted(self, missing: set[str]) -> str:
        """Return the thing to walk to and use."""
        if self.front in ("zombie", "skeleton"):
            return self.front
        if self.seen.get("zombie", (9,))[0] <= 3:
            return "zombie"
        if self.front == "water" and not self.has("drink", 9) or not self.has("drink", 5):
            return "water"
        if "water" in self.seen and "collect_drink" in missing:
            return "water"
        if not self.has("food", 5) or ("cow" in self.seen and "eat_cow" in missing):
            return "cow"
        if "collect_sapling" in missing or self.has("sapling"):
            return "grass"
        return self.material(missing)

    def material(self, missing: set[str]) -> str:
        """Return the material of the next tool, or else one that is still to be collected."""
        tool = self.next_tool()
        if tool and self.ready(tool):
            return "table" if "table" in self.seen else "tree"
        if tool and (not self.has("wood") or "wood" in tool):
            return "tree"
        for thing in ("iron", "coal"):
            if f"collect_{thing}" in missing and thing in self.seen:
                return thing
        return "stone" if tool or "place_furnace" in missing else "coal"
