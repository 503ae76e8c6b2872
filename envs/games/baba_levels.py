"""BabaIsAI levels: the forty tasks of the BALROG benchmark, and the generator of their maps.

A task is a line or two in the tables below, which list the objects and text blocks of a map and the
cells where they may lie. `generate` draws one map as (width, height, cells).
`envs.games.baba_game` defines the tokens in the cells and the rules of the game.
"""

from dataclasses import dataclass

import numpy as np

Area = tuple[tuple[int, int], ...]  # cells (x, y)


def generate(task: str, rng: np.random.Generator) -> tuple[int, int, list]:
    """Return width, height and the cells of a new level: [x, y, stack], in row-major order."""
    plan = PLANS[task]
    kinds = [("ball", "key", "door")[i] for i in rng.permutation(3)]
    board = _Board(rng)
    for x, y in plan.dividing_wall:
        board.put((x, y), "obj:wall")
    board.write(plan.you_at, "baba", "you")
    if plan.stop_at is not None:
        board.write(plan.stop_at, "wall", "stop")
    board.write(plan.win_at, kinds[0], "win")
    if plan.distr_noun:
        board.put(board.free(plan.distr_noun_area), f"noun:{kinds[plan.distr_noun - 1]}")
    if plan.stop_broken:
        x, y = plan.stop_at
        block = (x + rng.integers(1, 3), y)  # `is` or `stop`
        board.move(block, board.free(plan.loose_stop_area))
    if plan.win_broken:
        board.move(plan.win_at, board.free(plan.loose_win_area))
    board.put(board.free(plan.baba_area), "obj:baba")
    for kind in kinds[: 2 if plan.distr_obj else 1]:
        colour = ("red", "blue", "green")[rng.integers(3)]
        board.put(board.free(plan.object_area), f"obj:{kind}:{colour}")
    if plan.distr_win_at is not None:  # covers what lies there, as in the benchmark
        board.write(plan.distr_win_at, kinds[2], "win")
    return *plan.size, board.cells()


class _Board:
    """A map under construction: a stack of tokens for each cell."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.stacks = {}

    def put(self, cell: tuple[int, int], token: str) -> None:
        self.stacks.setdefault(cell, []).append(token)

    def write(self, cell: tuple[int, int], noun: str, prop: str) -> None:
        """Put three text blocks from `cell` to the right."""
        x, y = cell
        for i, token in enumerate([f"noun:{noun}", "is", f"prop:{prop}"]):
            self.put((x + i, y), token)

    def move(self, cell: tuple[int, int], goal: tuple[int, int]) -> None:
        """Move the stack of `cell` to the empty cell `goal`."""
        self.stacks[goal] = self.stacks.pop(cell)

    def free(self, area: Area) -> tuple[int, int]:
        """Draw one of the area's empty cells; a cell listed twice is twice as likely."""
        empty = [cell for cell in area if cell not in self.stacks]
        return empty[self.rng.integers(len(empty))]

    def cells(self) -> list:
        order = sorted(self.stacks, key=lambda cell: (cell[1], cell[0]))
        return [[int(x), int(y), self.stacks[x, y]] for x, y in order]


@dataclass(frozen=True)
class Plan:
    """The contents of a task's levels; obj1, obj2, obj3 are ball, key and door in random order.

    Every level has baba, obj1 and the rules `baba is you` and `obj1 is win`.
    """

    size: tuple[int, int]
    you_at: tuple[int, int]  # first cell of the rule `baba is you`, which reads to the right
    win_at: tuple[int, int]  # first cell of the rule `obj1 is win`
    baba_area: Area
    object_area: Area  # for obj1 and obj2
    loose_win_area: Area  # for the noun of the win rule, if win_broken
    win_broken: bool = False
    stop_at: tuple[int, int] | None = None  # first cell of the rule `wall is stop`
    stop_broken: bool = False
    loose_stop_area: Area = ()  # for `is` or `stop` of the stop rule, if stop_broken
    dividing_wall: Area = ()
    distr_obj: bool = False  # whether obj2 is on the map
    distr_noun: int = 0  # 2 or 3 if the text block of obj2 or obj3 is on the map
    distr_noun_area: Area = ()
    distr_win_at: tuple[int, int] | None = None  # first cell of the rule `obj3 is win`


def _box(left: int, right: int, top: int, bottom: int) -> Area:
    return tuple((x, y) for y in range(top, bottom + 1) for x in range(left, right + 1))


def _suffixes(relevant: Area, other: Area) -> dict[str, dict]:
    """Return the five variants of a task: with and without distracting objects and text blocks.

    relevant: the cells for obj2's block if obj2 is on the map
    other: the cells for a distracting block in the other variants
    """
    return {
        "": {},
        "-distr_obj": dict(distr_obj=True),
        "-distr_rule": dict(distr_noun=2, distr_noun_area=other),
        "-distr_obj_rule": dict(distr_obj=True, distr_noun=2, distr_noun_area=relevant),
        "-distr_obj-irrelevant_rule": dict(distr_obj=True, distr_noun=3, distr_noun_area=other),
    }


# One room. The distracting block lies at one of three edges; two corners are twice as likely.
ROOM = _box(1, 6, 2, 6)
EDGES = _box(4, 6, 1, 1) + _box(6, 6, 1, 6) + _box(4, 6, 6, 6)
ONE_ROOM = dict(
    size=(8, 8),
    you_at=(1, 6),
    win_at=(1, 1),
    baba_area=ROOM,
    object_area=ROOM,
    loose_win_area=_box(2, 5, 2, 5),
)
ONE_ROOM_BASES = {"goto_win": {}, "make_win": dict(win_broken=True)}

# Two rooms. Blocks in the pushable areas can be moved in all directions.
LEFT_PUSHABLE = _box(2, 5, 3, 5)
RIGHT_PUSHABLE = _box(7, 10, 3, 5)
RIGHT_BORDER = _box(11, 11, 2, 6) + _box(8, 11, 7, 7)
LEFT_ANYWHERE = _box(1, 4, 1, 7)
RIGHT_ANYWHERE = _box(7, 10, 2, 7)
ANYWHERE = _box(1, 11, 2, 7)
TWO_ROOMS = dict(
    size=(13, 9),
    dividing_wall=_box(6, 6, 1, 7),
    you_at=(1, 7),
    stop_at=(1, 2),
    win_at=(9, 1),
    baba_area=LEFT_PUSHABLE,
    loose_stop_area=LEFT_PUSHABLE,
    loose_win_area=RIGHT_PUSHABLE,
)
OPEN_LEFT = dict(object_area=LEFT_ANYWHERE, stop_broken=True)
BREAK_STOP = dict(object_area=RIGHT_ANYWHERE)
TWO_ROOM_BASES = {
    "two_room-goto_win": OPEN_LEFT,
    "two_room-break_stop-goto_win": BREAK_STOP,
    "two_room-maybe_break_stop-goto_win": dict(object_area=ANYWHERE),
    "two_room-make_win": OPEN_LEFT | dict(win_broken=True),
    "two_room-break_stop-make_win": BREAK_STOP | dict(win_broken=True),
}
TWO_ROOM_SUFFIXES = _suffixes(relevant=RIGHT_BORDER, other=RIGHT_PUSHABLE)
DISTR_WIN_RULE = TWO_ROOM_SUFFIXES["-distr_obj_rule"] | dict(distr_win_at=(9, 4))

# Three more tasks, with smaller pushable areas.
SMALL_LEFT = _box(2, 4, 3, 5)
SMALL_RIGHT = _box(8, 10, 3, 5)
SPECIAL = BREAK_STOP | dict(baba_area=SMALL_LEFT, distr_obj=True)
MAKE_YOU = SPECIAL | dict(
    you_at=(1, 6),
    stop_at=(1, 1),
    loose_win_area=SMALL_RIGHT,
    distr_noun=2,
    distr_noun_area=SMALL_LEFT,
)
MAKE_WALL_WIN = SPECIAL | dict(
    stop_at=(2, 2),
    win_broken=True,
    loose_win_area=RIGHT_BORDER,
    distr_noun=3,
    distr_noun_area=SMALL_RIGHT,
)


def _plans() -> dict[str, Plan]:
    plans = {}
    for base, fixed in ONE_ROOM_BASES.items():
        for suffix, extra in _suffixes(relevant=EDGES, other=EDGES).items():
            plans[base + suffix] = Plan(**(ONE_ROOM | fixed | extra))
    two_rooms = {
        base + suffix: fixed | extra
        for base, fixed in TWO_ROOM_BASES.items()
        for suffix, extra in TWO_ROOM_SUFFIXES.items()
    } | {
        "two_room-goto_win-distr_win_rule": TWO_ROOM_BASES["two_room-goto_win"] | DISTR_WIN_RULE,
        "two_room-make_win-distr_win_rule": TWO_ROOM_BASES["two_room-make_win"] | DISTR_WIN_RULE,
        "two_room-make_you": MAKE_YOU,
        "two_room-make_you-make_win": MAKE_YOU | dict(win_broken=True),
        "two_room-make_wall_win": MAKE_WALL_WIN,
    }
    return plans | {name: Plan(**(TWO_ROOMS | items)) for name, items in two_rooms.items()}


PLANS = _plans()  # task -> Plan
