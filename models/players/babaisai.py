"""A BabaIsAI player that finds the shortest way by search and then fails to take it.

Its thoughts are right: they name the thing to reach, or the text block to push first, and its
position. Its actions are often wrong. It waits in front of what wins, it walks straight at its goal
when a rule has to be changed first, and now and then it acts at random.

It may remember the observations of its prompt (see `babaisai_memory`). Then it waits in front of
some things only until it has seen some equal observations in a row, and the prompts may show wrong
thoughts of earlier turns.
"""

import copy
import heapq
import itertools
import math
from collections import deque

from envs.games.baba_game import NOUNS, PROPERTIES, Level
from envs.games.babaisai import SYSTEM, BabaIsAI
from models.players.repeats import again, unchanged

# shy: share of the arrivals in front of what wins at which it begins to wait
# straight: share of the turns in which it ignores that a rule has to be changed first
# slip: share of the turns whose thought is wrong in later prompts
# learns: thing -> the number of equal observations after which it stops waiting in front of it
# The tasks are the plain room and the paper's four (Table 3).
TASKS = {
    "goto_win": dict(episodes=250, stray=0.5, noise=0.03, shy=1.0),
    "goto_win-distr_obj": dict(episodes=250, stray=0.5, noise=0.03, shy=1.0),
    "two_room-goto_win": dict(episodes=150, stray=0.5, noise=0.03, shy=1.0),
    "two_room-goto_win-distr_obj_rule": dict(episodes=150, stray=0.5, noise=0.03, shy=1.0),
    "two_room-maybe_break_stop-goto_win": dict(
        episodes=120, stray=0.4, noise=0.03, shy=1.0, straight=0.9
    ),
}
LONGEST_MEMORY = 1
# As one token each, these passages make a prompt many times shorter.
FIXED = [
    *(SYSTEM, f"\n\n{BabaIsAI.instruction}"),
    *("Current Observation:\nActive rules:\n", "Observation:\nActive rules:\n"),
    *("\n\nObjects on the map:\n", "THINK:", "\nACTION:"),
    *(f"rule `{word}`" for word in ("is", *NOUNS, *PROPERTIES)),
]
WAYS = ("to the right", "to the left", "down", "up")
PASSAGES = [
    *FIXED,
    *(f" steps {way}" for way in ("to the right", "down")),
    *(f" step {way}" for way in WAYS),
]
MOVES = ("right", "left", "down", "up")  # of two equally short ways, search prefers sideways
MAX_STATES = 5_000  # after which a search gives up; that takes about a second


class Player:
    memory_length = 0  # turns in its prompts; without `learns` it remembers none of them

    def __init__(
        self, task, rng, *, noise=0.0, shy=0.0, straight=0.0, stray=0.0, slip=0.0, learns=None
    ):
        self.rng, self.patience, self.slip = rng, learns or {}, slip
        self.noise, self.shy, self.straight, self.stray = noise, shy, straight, stray
        self.env = BabaIsAI(task)

    def start(self) -> None:
        self.seen = deque(maxlen=self.memory_length if self.patience else 0)  # observations
        self.plan = []

    def respond(self, text: str) -> tuple[str, str] | None:
        self.plan = self.plan or search(self.env.level)
        if not self.plan:  # a random action made the level unsolvable or too hard
            return None
        cell = target(self.env.level, self.plan)
        repeats = unchanged(text, self.seen)
        reasoning = thought(self.env.level, cell) + again(repeats)
        shown = self.wrong_thought(cell) + again(repeats) if self.slips() else reasoning
        chosen = self.fail(self.plan, cell, repeats)
        executed = self.any_action() if self.rng.random() < self.stray else chosen
        if executed == self.plan[0]:
            self.plan = self.plan[1:]
        elif step(self.env.level, executed)[0].tops != self.env.level.tops:
            self.plan = []
        self.seen.append(text)
        return f"THINK: {reasoning}\nACTION: {chosen}", f"THINK: {shown}\nACTION: {executed}"

    def slips(self) -> bool:
        return self.slip > 0 and self.rng.random() < self.slip

    def wrong_thought(self, cell: int) -> str:
        """Return the thought with the position of a random thing."""
        cells = listed(self.env.level)
        return thought(self.env.level, cell, cells[self.rng.integers(len(cells))])

    def fail(self, plan: list[str], cell: int, repeats: int) -> str:
        """Return the action to learn: the plan's first, or a mistake.

        repeats: how many of the last remembered observations equal the current one
        """
        if self.rng.random() < self.noise:
            return self.any_action()
        thing = self.env.level.tops[cell]
        if len(plan) == 1:
            if not self.shy or repeats >= self.patience.get(thing.noun, math.inf):
                return plan[0]
            arrives = self.seen and not repeats
            return plan[0] if self.rng.random() >= self.shy and arrives else "idle"
        straight = thing.word and self.rng.random() < self.straight
        return straight_on(self.env.level) if straight else plan[0]

    def any_action(self) -> str:
        return self.env.actions[self.rng.integers(len(self.env.actions))]


def search(level: Level) -> list[str]:
    """Return the shortest way to a win, or [] if none is found: A* with the distance as bound."""
    order = itertools.count()  # breaks ties: the state found first is expanded first
    queue, known = [(distance(level), next(order), level, [])], {tuple(level.tops)}
    while queue and len(known) < MAX_STATES:
        _, _, now, way = heapq.heappop(queue)
        for action in MOVES:
            after, won = step(now, action)
            if won:
                return [*way, action]
            state = tuple(after.tops)
            if after.you is not None and state not in known:
                known.add(state)
                cost = len(way) + 1 + distance(after)
                heapq.heappush(queue, (cost, next(order), after, [*way, action]))
    return []


def step(level: Level, action: str) -> tuple[Level, bool]:
    """Return a copy of the level after an action, and whether the action wins."""
    after = copy.copy(level)
    after.tops, after.below = level.tops[:], [things[:] for things in level.below]
    reward, _ = after.step(action)
    return after, reward > 0


def offset(level: Level, cell: int) -> tuple[int, int]:
    """Return a cell's distance from the player: steps to the right and steps down."""
    (y, x), (to_y, to_x) = divmod(level.you, level.width), divmod(cell, level.width)
    return to_x - x, to_y - y


def steps_to(level: Level, cell: int) -> int:
    return sum(map(abs, offset(level, cell)))


def winning(level: Level) -> list[int]:
    """Return the cells of all visible things that win, nearest first."""
    nouns = {subject for subject, _, predicate in level.rules() if predicate == "win"}
    cells = [cell for cell, thing in enumerate(level.tops) if thing.noun in nouns]
    return sorted(cells, key=lambda cell: steps_to(level, cell))


def distance(level: Level) -> int:
    return next((steps_to(level, cell) for cell in winning(level)), 0)


def straight_on(level: Level) -> str:
    """Return a step straight at the nearest winning thing, sideways first, ignoring obstacles."""
    dx, dy = next((offset(level, cell) for cell in winning(level)), (1, 0))
    return ("right" if dx > 0 else "left") if dx else ("down" if dy > 0 else "up")


def target(level: Level, plan: list[str]) -> int:
    """Return the cell of the first block whose push changes a rule, or else of what wins."""
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


def listed(level: Level) -> list[int]:
    """Return the cells that the observation lists, in the order of its lines."""
    return [cell for cell, thing in enumerate(level.tops) if thing.label]


def thought(level: Level, cell: int, believed: int | None = None) -> str:
    """Return the thing to reach or to push and its position, as the observation words it.

    believed: the cell whose position the thought names; default: cell
    """
    thing, believed = level.tops[cell], cell if believed is None else believed
    if not thing.label:  # it is covered
        return "I search."
    cells = listed(level)
    line = level.text().split("\n")[-len(cells) :][cells.index(believed)]
    line = line.replace(level.tops[believed].label, thing.label)
    return f"{'push' if thing.word else 'go to'} {line}."
