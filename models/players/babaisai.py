"""A BabaIsAI player that sees the way and spoils it: a search over the game, kept from its goal.

Its thoughts are right (which thing is to be reached, or which text block to be pushed first, and
where that is), its actions are not always: in front of what wins it waits, where a rule has to be
changed first it walks straight at its goal, and now and then it does anything.
"""

import copy
import heapq
import itertools

from envs.actions import FAMILIES
from envs.baba_game import NOUNS, PROPERTIES, Level
from envs.babaisai import SYSTEM, BabaIsAI

# noise: share of random actions; shy: share of the turns in front of what wins at which it waits;
# straight: of the turns at which it ignores that a rule has to be changed first. stray: share of
# the turns at which something else is executed than what is learnt, so that the clone knows its way
# from everywhere. The tasks are the plain room and the paper's four (Table 3).
TASKS = {
    "goto_win": dict(episodes=250, stray=0.5, noise=0.03, shy=1.0),
    "goto_win-distr_obj": dict(episodes=250, stray=0.5, noise=0.03, shy=1.0),
    "two_room-goto_win": dict(episodes=150, stray=0.5, noise=0.03, shy=1.0),
    "two_room-goto_win-distr_obj_rule": dict(episodes=150, stray=0.5, noise=0.03, shy=1.0),
    "two_room-maybe_break_stop-goto_win": dict(
        episodes=120, stray=0.4, noise=0.03, shy=1.0, straight=0.9
    ),
}
LONGEST_MEMORY = 1  # turns
# Constant passages and phrases, one token each: they make a prompt many times shorter.
PASSAGES = [
    *(SYSTEM, f"\n\n{BabaIsAI.instruction}"),
    *("Current Observation:\nActive rules:\n", "Observation:\nActive rules:\n"),
    *("\n\nObjects on the map:\n", "THINK:", "\nACTION:"),
    *(f"rule `{word}`" for word in ("is", *NOUNS, *PROPERTIES)),
    *(f" steps {way}" for way in ("to the right", "down")),
    *(f" step {way}" for way in ("to the right", "to the left", "down", "up")),
]
MOVES = ("right", "left", "down", "up")  # sideways first, where both ways are as short
NODES = 5_000  # states at which a search gives up: about a second


class Player:
    def __init__(self, task: str, rng, noise=0.0, shy=0.0, straight=0.0, stray=0.0):
        self.rng = rng
        self.noise, self.shy, self.straight, self.stray = noise, shy, straight, stray
        self.actions = FAMILIES["babaisai"].actions
        self.env = BabaIsAI(task)

    def start(self) -> None:
        self.plan = []

    def respond(self, text: str) -> tuple[str, str] | None:
        self.plan = self.plan or search(self.env.level)
        if not self.plan:  # a random action made it unsolvable, or too hard
            return None
        cell = target(self.env.level, self.plan)
        said, chosen = thought(self.env.level, cell), self.fail(self.plan, cell)
        executed = self.any_action() if self.rng.random() < self.stray else chosen
        if executed == self.plan[0]:
            self.plan = self.plan[1:]
        elif step(self.env.level, executed)[0].tops != self.env.level.tops:
            self.plan = []
        return tuple(f"THINK: {said}\nACTION: {action}" for action in (chosen, executed))

    def fail(self, plan: list[str], cell: int) -> str:
        """What it does instead of what the search found."""
        if self.rng.random() < self.noise:
            return self.any_action()
        if len(plan) == 1:
            return "idle" if self.rng.random() < self.shy else plan[0]
        straight = self.env.level.tops[cell].word and self.rng.random() < self.straight
        return straight_on(self.env.level) if straight else plan[0]

    def any_action(self) -> str:
        return self.actions[self.rng.integers(len(self.actions))]


def search(level: Level) -> list[str]:
    """The shortest way to a win (A*: no way is shorter than the distance), [] if none was found."""
    order = itertools.count()  # of equals the first one found goes on
    queue, known = [(distance(level), next(order), level, [])], {tuple(level.tops)}
    while queue and len(known) < NODES:
        _, _, now, way = heapq.heappop(queue)
        for action in MOVES:
            after, won = step(now, action)
            if won:
                return [*way, action]
            seen = tuple(after.tops)
            if after.you is not None and seen not in known:
                known.add(seen)
                cost = len(way) + 1 + distance(after)
                heapq.heappush(queue, (cost, next(order), after, [*way, action]))
    return []


def step(level: Level, action: str) -> tuple[Level, bool]:
    """A copy of the level after an action, and whether that won."""
    after = copy.copy(level)
    after.tops, after.below = level.tops[:], [things[:] for things in level.below]
    reward, _ = after.step(action)
    return after, reward > 0


def offset(level: Level, cell: int) -> tuple[int, int]:
    """From the player to a cell: steps to the right, steps down."""
    (y, x), (to_y, to_x) = divmod(level.you, level.width), divmod(cell, level.width)
    return to_x - x, to_y - y


def steps_to(level: Level, cell: int) -> int:
    return sum(map(abs, offset(level, cell)))


def winning(level: Level) -> list[int]:
    """The cells of all that is seen and wins, the nearest first."""
    nouns = {subject for subject, _, predicate in level.rules() if predicate == "win"}
    cells = [cell for cell, thing in enumerate(level.tops) if thing.noun in nouns]
    return sorted(cells, key=lambda cell: steps_to(level, cell))


def distance(level: Level) -> int:
    return next((steps_to(level, cell) for cell in winning(level)), 0)


def straight_on(level: Level) -> str:
    """The step straight at what wins, sideways first, whatever is in the way."""
    dx, dy = next((offset(level, cell) for cell in winning(level)), (1, 0))
    return ("right" if dx > 0 else "left") if dx else ("down" if dy > 0 else "up")


def target(level: Level, plan: list[str]) -> int:
    """The cell of the block whose push is the first to change a rule, or of what wins."""
    now = level
    for action in plan[:-1]:
        after, _ = step(now, action)
        pushed = now.tops[in_front(now, action)]
        if pushed.word and after.rules() != now.rules():
            return level.tops.index(pushed)
        now = after
    return in_front(now, plan[-1])


def in_front(level: Level, action: str) -> int:
    by = {"up": -level.width, "right": 1, "down": level.width, "left": -1}
    return level.you + by[action]


def thought(level: Level, cell: int) -> str:
    """What is to be reached or pushed, in words of the observation."""
    listed = [place for place, thing in enumerate(level.tops) if thing.label]
    if cell not in listed:  # it is covered
        return "I search."
    line = level.text().split("\n")[-len(listed) :][listed.index(cell)]
    return f"{'push' if level.tops[cell].word else 'go to'} {line}."
