"""A player of textarena's FrozenLake that sees the holes and mostly ignores them.

Its thoughts are right: they list its four neighbouring cells. Its moves are poor: in most turns it
goes right or down, even into a hole. In the others it takes a shortest safe way. Importing this
file needs the package textarena.
"""

import re
from collections import deque

from envs import make_env
from envs.text_env import begin

TASK = "textarena:FrozenLake-v0"
# care: share of the turns in which it takes a safe way
# `stray` executes a move onto ice, so that the clone sees the whole lake.
TASKS = {TASK: dict(episodes=1500, care=0.15, noise=0.05, stray=0.5)}
LONGEST_MEMORY = 1
WAYS = {"right": (0, 1), "down": (1, 0), "left": (0, -1), "up": (-1, 0)}
SIGNS = {" ": "ice", "P": "ice", "H": "hole", "G": "goal"}
SIZE = 4  # cells in a row, and rows
LINE = "+-----" * SIZE + "+"
FIRST = begin(make_env(TASK), seed=0)
# As one token each, these passages make a prompt many times shorter; a cell of the board is one.
PASSAGES = [
    *("Observation:\n", "Current Observation:\n", f"\n\n{FIRST.instruction}", FIRST.system),
    *("The game begins.", "You moved ", " to position ", "You attempted an invalid move. "),
    *(f"Current Board:\n\n{LINE}\n|", f"\n{LINE}\n|"),
    f"\n{LINE}\n\n{FIRST.text[FIRST.text.index('Available') :]}",
    *(f"  {sign}  |" for sign in SIGNS),
    *(f"{way}: {what}." for way in WAYS for what in ("ice", "hole", "goal", "wall")),
    *("THINK: ", "\nACTION:"),
]


class Player:
    def __init__(self, task: str, rng, care=1.0, noise=0.0, stray=0.0):
        self.rng, self.care, self.noise, self.stray = rng, care, noise, stray
        self.env = make_env(task)

    def start(self) -> None:
        pass

    def respond(self, text: str) -> tuple[str, str]:
        lake, position = read(text)
        around = {way: lake.get(neighbour(position, way), "wall") for way in WAYS}
        chosen = self.choose(around, lake, position)
        ice = [way for way, cell in around.items() if cell == "ice"]
        strays = ice and self.rng.random() < self.stray
        executed = self.any_of(ice) if strays else chosen
        reasoning = " ".join(f"{way}: {cell}." for way, cell in around.items())
        return tuple(f"THINK: {reasoning}\nACTION: {way}" for way in (chosen, executed))

    def choose(self, around: dict[str, str], lake: dict, position: tuple[int, int]) -> str:
        """Return the move to learn."""
        if self.rng.random() < self.noise:
            return self.any_of(list(WAYS))
        if self.rng.random() < self.care:
            return safe_way(lake, position)
        return self.any_of([way for way in ("right", "down") if around[way] != "wall"])

    def any_of(self, ways: list[str]) -> str:
        return ways[self.rng.integers(len(ways))]


def read(text: str) -> tuple[dict[tuple[int, int], str], tuple[int, int]]:
    """Return the content of each cell (row, column) of the board, and the player's cell."""
    rows = [re.findall(r"  (.)  (?=\|)", line) for line in text.splitlines() if line[:1] == "|"]
    signs = {(r, c): sign for r, row in enumerate(rows) for c, sign in enumerate(row)}
    position = next(cell for cell, sign in signs.items() if sign == "P")
    return {cell: SIGNS[sign] for cell, sign in signs.items()}, position


def neighbour(cell: tuple[int, int], way: str) -> tuple[int, int]:
    return cell[0] + WAYS[way][0], cell[1] + WAYS[way][1]


def safe_way(lake: dict[tuple[int, int], str], position: tuple[int, int]) -> str:
    """Return the first move of a shortest way to the goal without holes; there always is one."""
    ways, known = deque([(position, "")]), {position}
    while ways:
        cell, first = ways.popleft()
        if lake[cell] == "goal":
            return first
        for way in WAYS:
            next_cell = neighbour(cell, way)
            if lake.get(next_cell, "hole") != "hole" and next_cell not in known:
                known.add(next_cell)
                ways.append((next_cell, first or way))
    raise ValueError(f"no way leads from {position} to the goal")
