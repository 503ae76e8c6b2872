"""BabyAI rooms whose mission is told once, in the first observation.

Six different things lie in a room, and the agent has to pick up some of them, in an order. Picking
up any other thing ends the episode, so nobody finds out by trying. Rooms, actions and observations
are those of `envs.games.babyai`; the system message says only that there is a mission.
"""

from common.plugins import UserError
from envs.games.babyai import (
    HELD_OUT,
    SYSTEM_AFTER,
    SYSTEM_BEFORE,
    BabyAI,
    ObjDesc,
    RejectSampling,
    TaskLevel,
    verifier,
)
from envs.text_env import TextEnv

THINGS = 6
# task -> the things to pick up, whether the room is larger, and turns until truncation
TASKS = {
    "pickup-2": (2, False, 64),
    "pickup-3-16x16": (3, True, 256),
    "pickup-5-16x16": (5, True, 384),
}
TOLD = "You are told only once: "
RIGHT, WRONG = "That was right.", "That was wrong."
GOAL = "do what your first observation tells you, in its order; a wrong thing ends the game"


class Told(BabyAI):
    """One of `tasks`. It pays 1 when the last thing is in the agent's hands."""

    family = "told"
    tasks = {task: limit for task, (_, _, limit) in TASKS.items()}
    prompt_fields = {name: BabyAI.prompt_fields[name] for name in ("actions", "tips")}

    def __init__(
        self, task: str, format_penalty: float = 0.1, max_episode_steps: int | None = None
    ):
        if task not in TASKS:
            raise UserError(f"unknown task {task!r}; choices: {', '.join(TASKS)}")
        TextEnv.__init__(self, max_episode_steps or self.tasks[task], format_penalty)
        things, large, _ = TASKS[task]
        self.level = ToldLevel(things, large, self.max_episode_steps)

    def _start(self) -> str:
        text = super()._start()
        self.left = list(self.level.wanted)
        return f"{TOLD}{mission(self.left)}.\n{text}"

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        before = self.level.carrying
        text, *_ = super()._act(action)
        held = self.level.carrying
        if held is None or held is before:
            return text, 0.0, False, False
        if (held.color, held.type) != self.left[0]:
            return f"{WRONG}\n{text}", 0.0, True, False
        del self.left[0]
        done = not self.left
        return f"{RIGHT}\n{text}", float(done), done, done

    def system_prompt(self) -> str:
        return SYSTEM_BEFORE + GOAL + SYSTEM_AFTER


def mission(things: list[tuple[str, str]]) -> str:
    """Return the words for some things (colour, type), in their order."""
    return "pick up " + ", then ".join(f"the {colour} {kind}" for colour, kind in things)


class ToldLevel(TaskLevel):
    """A room of six different things. wanted: (colour, type) of those to pick up, in order"""

    def __init__(self, things: int, large: bool, max_steps: int):
        self.things, self.wanted = things, []
        super().__init__("goto-16x16" if large else "goto", max_steps)

    def gen_mission(self) -> None:
        self.place_agent()
        objects = self.add_distractors(num_distractors=THINGS, all_unique=True)
        chosen = self._rand_subset(objects, self.things)
        self.wanted = [(thing.color, thing.type) for thing in chosen]
        if any(words in mission(self.wanted) for words in HELD_OUT):
            raise RejectSampling("a held-out thing")
        # Minigrid needs an instruction; `Told` judges by itself.
        self.instrs = verifier.PickupInstr(ObjDesc(chosen[0].type, chosen[0].color))
        self.check_objs_reachable()
