"""BabyAI-Text: five tasks in one or two rooms of minigrid, as a text environment.

`BabyAI` is the environment, `describe` turns the 7x7 view into the observation text, and
`TaskLevel` draws a task's level and mission. Rules and verifier are minigrid's own;
`envs.games.babyai_view` computes the same view as minigrid, but faster. The tasks and their
held-out missions follow the BALROG benchmark. No other file of the trainer imports minigrid.
"""

import contextlib
import os
import re

import numpy as np

from common.plugins import UserError

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # silences pygame, which minigrid imports

from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX
from minigrid.core.world_object import Wall
from minigrid.envs.babyai.core import verifier
from minigrid.envs.babyai.core.roomgrid_level import RejectSampling, RoomGridLevel
from minigrid.envs.babyai.core.verifier import Instr, ObjDesc

from envs.actions import combine
from envs.games.babyai_view import look
from envs.text_env import TextEnv

HELD_OUT = ("yellow box", "red key", "red door", "green ball", "grey door")  # never in a mission
DOOR_COLOURS = ("yellow", "green", "blue", "purple")
ROOM = 8  # cells along a side, walls included
LARGER = {"goto-12x12": ("goto", 12), "goto-16x16": ("goto", 16)}  # not in the benchmark

# These two are constant strings, so that each can be a single token of the embedded model.
SYSTEM_BEFORE = """\
You play a simple navigation game: you walk through rooms on a grid and handle keys, balls, boxes \
and doors. Your goal is to """
ACTIONS = """\
turn left: face the direction on your left,
turn right: face the direction on your right,
go forward: move one step in the direction you face,
pick up: take the object one step in front of you if your hands are free,
drop: put what you carry on the empty floor one step in front of you,
toggle: open or close the door one step in front of you (a locked door opens only while you carry \
the key of its colour; a toggled box is destroyed)"""
TIPS = """\
- Toggle interacts with what is right in front of you, so walk up to the door you want first.
- An action that did not change the observation will not change it the next time: try another one.\
"""
SYSTEM_AFTER = f""".

Each turn you take one of these actions:
{ACTIONS}.

An observation will follow: what you see and carry, with distances from where you stand, in the \
direction you face. You have reached an object when it is 1 step forward.

Tips:
{TIPS}

PLAY!"""


class BabyAI(TextEnv):
    """One of `tasks`. Minigrid's verifier judges success.

    max_episode_steps: turns until an episode is truncated; None means the task's own limit
    """

    family = "babyai"
    # task -> turns until truncation: one per cell of a room, for each room and each object to reach
    tasks = {
        "goto": 64,
        "pickup": 64,
        "open": 128,
        "putnext": 128,
        "pick-up-seq-go-to": 128,
        "goto-12x12": 144,
        "goto-16x16": 256,
    }
    binary_reward = True
    actions = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
    default_action = "go forward"
    near_misses = {
        # "go left" is not accepted: no action steps sideways.
        "turn left": ["left", *combine("turn_to turn_to_your rotate face look", "left")],
        "turn right": ["right", *combine("turn_to turn_to_your rotate face look", "right")],
        "go forward": [
            *("forward", "forwards", "ahead", "straight", "advance"),
            *combine("go move step walk take_step take_one_step", "forward forwards ahead"),
            *combine("go move walk", "straight straight_ahead straight_forward"),
        ],
        "pick up": ["pick", "grab", "get", "take", "collect"],
        "drop": ["put down", "place down", "release", "let go"],
        "toggle": ["open", "close", "unlock", "use", "interact", "interact with"],
    }
    named_objects = re.compile(
        r" (?:it|(?:locked |closed )?(?:(?:red|green|blue|purple|yellow|grey) )?"
        r"(?:key|ball|box|door|object|item))\b"
    )

    prompt_fields = {
        "mission": lambda env: env.level.mission,
        "actions": lambda env: ACTIONS,
        "tips": lambda env: TIPS,
    }

    def __init__(
        self, task: str, format_penalty: float = 0.1, max_episode_steps: int | None = None
    ):
        if task not in self.tasks:
            raise UserError(f"unknown BabyAI task {task!r}; choices: {', '.join(self.tasks)}")
        super().__init__(max_episode_steps or self.tasks[task], format_penalty)
        self.level = TaskLevel(task, self.max_episode_steps)

    def _start(self) -> str:
        self.level.np_random = self.np_random
        view, _ = self.level.reset()
        return self._text(view)

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        view, reward, terminated, _, _ = self.level.step(self.actions.index(action))
        return self._text(view), reward, terminated, terminated  # minigrid ends only on success

    def _text(self, view: dict) -> str:
        held = self.level.carrying
        return "\n".join(describe(view["image"], held and (held.type, held.color)))

    def system_prompt(self) -> str:
        return SYSTEM_BEFORE + self.level.mission + SYSTEM_AFTER

    def render(self) -> np.ndarray:
        return self.level.get_frame()


def describe(image: np.ndarray, carrying: tuple[str, str] | None) -> list[str]:
    """Return the lines of an observation: the carried object, walls ahead and beside, objects.

    image: (7, 7, 3), where image[i][j] = (type, colour, state) of column i from the left and row j
        from far to near; the agent is at (3, 6) and faces j = 0
    carrying: (type, colour) of the carried object, or None
    """
    cells = image.tolist()
    lines = [f"You carry a {carrying[1]} {carrying[0]}"] if carrying else []
    rays = {
        "forward": [cells[3][j] for j in range(5, -1, -1)],
        "left": [cells[i][6] for i in range(2, -1, -1)],
        "right": [cells[i][6] for i in range(4, 7)],
    }
    for way, ray in rays.items():
        # The first thing on the ray counts: a wall behind an object is not mentioned.
        n, kind = next(((n, c[0]) for n, c in enumerate(ray, 1) if c[0] not in NOTHING), (0, None))
        if kind == WALL:
            lines.append(f"a wall {_steps(n)} {way}")
    for i in range(7):
        for j in range(7):
            if cells[i][j][0] not in BACKGROUND and (i, j) != (3, 6):
                lines.append(f"a {_object_name(cells[i][j])} {_position(i - 3, 6 - j)}")
    return lines or [NOTHING_SEEN]  # in the middle of a large room


NOTHING_SEEN = "You see nothing but the floor"
NOTHING, WALL = (0, 1), 2  # minigrid's codes; nothing: unseen, empty
BACKGROUND = (*NOTHING, WALL)
DOOR_STATES = {index: name for name, index in STATE_TO_IDX.items()}


def _object_name(cell: list[int]) -> str:
    kind, colour, state = cell
    name = f"{IDX_TO_COLOR[colour]} {IDX_TO_OBJECT[kind]}"
    return f"{DOOR_STATES[state]} {name}" if IDX_TO_OBJECT[kind] == "door" else name


def _position(right: int, forward: int) -> str:
    side = f"{_steps(abs(right))} {'right' if right > 0 else 'left'}"
    ahead = f"{_steps(forward)} forward"
    if right and forward:
        return f"{side} and {ahead}"
    return side if right else ahead


def _steps(n: int) -> str:
    return f"{n} step" if n == 1 else f"{n} steps"


OUTSIDE = Wall()  # used for every cell beyond the grid


class TaskLevel(RoomGridLevel):
    """Draws levels of a task: one room, or for `open` two with a locked door between them."""

    def __init__(self, task: str, max_steps: int):
        self.task, size = LARGER.get(task, (task, ROOM))
        cols = 2 if task == "open" else 1
        super().__init__(room_size=size, num_rows=1, num_cols=cols, max_steps=max_steps)

    def _gen_grid(self, width: int, height: int) -> None:
        with contextlib.redirect_stdout(None):  # minigrid prints every rejected draw
            super()._gen_grid(width, height)

    def gen_obs(self) -> dict:
        """Return the same as minigrid's `gen_obs`, which would take most of a turn's time."""
        image = look(self.grid, self.agent_pos, self.agent_dir, self.carrying, OUTSIDE)
        return {"image": image, "direction": self.agent_dir, "mission": self.mission}

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
        objects = self.add_distractors(num_distractors=needed, all_unique=False)
        if self.task in ("goto", "pickup"):
            target = self._rand_elem(objects)
            description = ObjDesc(target.type, target.color)
            instruction = verifier.GoToInstr if self.task == "goto" else verifier.PickupInstr
            return instruction(description)
        a, b = self._draw_pair(objects)
        if self.task == "putnext":
            return verifier.PutNextInstr(a, b)
        if self._rand_bool():
            return verifier.BeforeInstr(verifier.PickupInstr(a), verifier.GoToInstr(b))
        return verifier.AfterInstr(verifier.GoToInstr(b), verifier.PickupInstr(a))

    def _draw_pair(self, objects: list) -> tuple[ObjDesc, ObjDesc]:
        """Draw two descriptions; they are equal only if two objects look alike."""
        looks = [(obj.type, obj.color) for obj in objects]
        a = self._rand_elem(looks)
        b = self._rand_elem(looks)
        while a == b and looks.count(a) == 1:
            b = self._rand_elem(looks)
        return ObjDesc(a[0], a[1]), ObjDesc(b[0], b[1])

    def _draw_open(self) -> Instr:
        colour = self._rand_elem(DOOR_COLOURS)
        locked = self._rand_int(0, 2)  # the room whose only door is locked
        start = 1 - locked  # the agent's room, which holds the key
        self.add_door(locked, 0, door_idx=2 * locked, color=colour, locked=True)
        self.add_object(start, 0, "key", colour)
        self.place_agent(start, 0)
        return verifier.OpenInstr(ObjDesc("door", colour if self._rand_bool() else None))
