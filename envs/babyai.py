"""BabyAI-Text: five tasks in one or two rooms on top of minigrid, told in words.

`describe` turns minigrid's 7x7 view into the observation text, `Level` generates a task's level
and mission, `BabyAI` is the environment. Rules, verifier and view are minigrid's own; the mixed
level and its held-out missions follow the BALROG benchmark. The trainer imports minigrid here only.
"""

import contextlib
import os

import numpy as np

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # minigrid imports pygame, which greets

from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from envs.actions import FAMILIES
from envs.text_env import TextEnv

# Turns until truncation: 64 per room and per object to be reached.
TASKS = {"goto": 64, "pickup": 64, "open": 128, "putnext": 128, "pick-up-seq-go-to": 128}
MAX_DISTS = 12  # more objects than this hardly ever leave each other reachable
HELD_OUT = ("yellow box", "red key", "red door", "green ball", "grey door")  # of every mission
DOOR_COLOURS = ("yellow", "green", "blue", "purple")

# Each of the two is one constant string, so that a small tokenizer can hold it as one token.
SYSTEM_BEFORE = """\
You play a simple navigation game: you walk through rooms on a grid and handle keys, balls, boxes \
and doors. Your goal is to """
SYSTEM_AFTER = """.

Each turn you take one of these actions:
turn left: face the direction on your left,
turn right: face the direction on your right,
go forward: move one step in the direction you face,
pick up: take the object one step in front of you if your hands are free,
drop: put what you carry on the empty floor one step in front of you,
toggle: open or close the door one step in front of you (a locked door opens only while you carry \
the key of its colour; a toggled box is destroyed).

An observation will follow: what you see and carry, with distances from where you stand, in the \
direction you face. You have reached an object when it is 1 step forward.

Tips:
- Toggle interacts with what is right in front of you, so walk up to the door you want first.
- An action that did not change the observation will not change it the next time: try another one.

PLAY!"""


class BabyAI(TextEnv):
    """One of `TASKS`; success is the word of minigrid's verifier.

    max_episode_steps: None is the task's own limit
    num_dists: objects besides those that the mission needs
    """

    family = "babyai"

    def __init__(
        self,
        task: str,
        format_penalty: float = 0.1,
        max_episode_steps: int | None = None,
        binary_reward: bool = True,
        num_dists: int = 0,
    ):
        if task not in TASKS:
            raise ValueError(f"unknown BabyAI task {task!r}; choices: {', '.join(TASKS)}")
        if not 0 <= num_dists <= MAX_DISTS:
            raise ValueError(f"num_dists must be in 0 .. {MAX_DISTS}, got {num_dists}")
        limit = TASKS[task] if max_episode_steps is None else max_episode_steps
        super().__init__(limit, binary_reward, format_penalty)
        self.level = Level(task, num_dists, limit)

    def _start(self) -> str:
        self.level.np_random = self.np_random
        view, _ = self.level.reset()
        return self._text(view)

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        index = FAMILIES[self.family].actions.index(action)
        view, reward, terminated, _, _ = self.level.step(index)
        return self._text(view), reward, terminated, terminated  # it ends with success only

    def _text(self, view: dict) -> str:
        held = self.level.carrying
        return "\n".join(describe(view["image"], held and (held.type, held.color)))

    def system_prompt(self) -> str:
        return SYSTEM_BEFORE + self.level.mission + SYSTEM_AFTER

    def render(self) -> np.ndarray:
        return self.level.get_frame()


def describe(image: np.ndarray, carrying: tuple[str, str] | None) -> list[str]:
    """The lines of an observation: what is carried, walls straight ahead and beside, objects.

    image: (7, 7, 3), image[i][j] = (type, colour, state) of column i from the left and row j from
        far to near; the agent is at (3, 6) and looks towards j = 0
    carrying: (type, colour)
    """
    cells = image.tolist()
    lines = [f"You carry a {carrying[1]} {carrying[0]}"] if carrying else []
    rays = {
        "forward": [cells[3][j] for j in range(5, -1, -1)],
        "left": [cells[i][6] for i in range(2, -1, -1)],
        "right": [cells[i][6] for i in range(4, 7)],
    }
    for way, ray in rays.items():
        n, kind = next(((n, c[0]) for n, c in enumerate(ray, 1) if c[0] not in NOTHING), (0, None))
        if kind == WALL:
            lines.append(f"a wall {_steps(n)} {way}")
    for i in range(7):
        for j in range(7):
            if cells[i][j][0] not in BACKGROUND and (i, j) != (3, 6):
                lines.append(f"a {_look(*cells[i][j])} {_position(i - 3, 6 - j)}")
    return lines


NOTHING = (0, 1)  # unseen, empty
WALL = 2
BACKGROUND = (*NOTHING, WALL)
DOOR_STATES = {index: name for name, index in STATE_TO_IDX.items()}


def _look(kind: int, colour: int, state: int) -> str:
    look = f"{IDX_TO_COLOR[colour]} {IDX_TO_OBJECT[kind]}"
    return f"{DOOR_STATES[state]} {look}" if IDX_TO_OBJECT[kind] == "door" else look


def _position(right: int, forward: int) -> str:
    side = f"{_steps(abs(right))} {'right' if right > 0 else 'left'}"
    ahead = f"{_steps(forward)} forward"
    if right and forward:
        return f"{side} and {ahead}"
    return side if right else ahead


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"


class Level(RoomGridLevel):
    """Levels of one task: one 8x8 room, or two with a locked door between them for `open`."""

    def __init__(self, task: str, num_dists: int, max_steps: int):
        self.task = task
        self.num_dists = num_dists
        cols = 2 if task == "open" else 1
        super().__init__(room_size=8, num_rows=1, num_cols=cols, max_steps=max_steps)

    def _gen_grid(self, width: int, height: int) -> None:
        with contextlib.redirect_stdout(None):  # minigrid prints each draw that it rejects
            super()._gen_grid(width, height)

    def gen_mission(self) -> None:
        """Draw a level and its instruction; minigrid draws again after a RejectSampling."""
        self.instrs = self._draw_open() if self.task == "open" else self._draw_room()
        self.check_objs_reachable()
        mission = self.instrs.surface(self)
        if any(words in mission for words in HELD_OUT):
            raise RejectSampling(mission)

    def _draw_room(self) -> Instr:
        self.place_agent()
        needed = 1 if self.task in ("goto", "pickup") else 2
        objects = self.add_distractors(num_distractors=self.num_dists + needed, all_unique=False)
        if self.task == "goto":
            return GoToInstr(_description(self._rand_elem(objects)))
        if self.task == "pickup":
            return PickupInstr(_description(self._rand_elem(objects)))
        a, b = self._draw_pair(objects)
        if self.task == "putnext":
            return PutNextInstr(a, b)
        if self._rand_bool():
            return BeforeInstr(PickupInstr(a), GoToInstr(b))
        return AfterInstr(GoToInstr(b), PickupInstr(a))

    def _draw_pair(self, objects: list) -> tuple[ObjDesc, ObjDesc]:
        """Two descriptions; they may be equal only where two objects look alike."""
        looks = [(obj.type, obj.color) for obj in objects]
        a = self._rand_elem(looks)
        b = self._rand_elem(looks)
        while a == b and looks.count(a) == 1:
            b = self._rand_elem(looks)
        return ObjDesc(*a), ObjDesc(*b)

    def _draw_open(self) -> Instr:
        colour = self._rand_elem(DOOR_COLOURS)
        locked = self._rand_int(0, 2)  # the room that the agent is not in
        start = 1 - locked
        self.add_door(locked, 0, door_idx=2 * locked, color=colour, locked=True)
        self.add_object(start, 0, "key", colour)
        self.add_distractors(start, 0, self.num_dists, all_unique=False)
        self.place_agent(start, 0)
        return OpenInstr(ObjDesc("door", colour if self._rand_bool() else None))


def _description(obj) -> ObjDesc:
    return ObjDesc(obj.type, obj.color)
