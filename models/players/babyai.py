"""A BabyAI player that knows what to do with some things only: minigrid's bot, kept from its goal.

Its thoughts are right (where is the thing that the mission wants next?), its actions are not
always. It plays well with things of the colours it knows. With others, it (nearly) always goes on
straight ahead when it does not see them instead of looking around, and in front of them instead of
using its hands. So how good a state is can be seen from the state, and there is much to learn.
"""

from minigrid.core.constants import COLOR_NAMES
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal

from envs.actions import FAMILIES
from envs.babyai import SYSTEM_AFTER, SYSTEM_BEFORE, BabyAI
from envs.text_env import THINK_ACT

# known: how many of the six colours; tries: share of the turns at which it plays well with others,
# for a reward that is too rare without; noise: share of random actions; stray: share of the turns
# at which something else is executed than what is learnt, so that the clone knows its way from
# everywhere. Chosen for a zero-shot success not far from that of the paper's 3B model.
TASKS = {
    "goto": dict(episodes=400, stray=0.6, noise=0.05, known=2),
    "pickup": dict(episodes=300, stray=0.6, noise=0.05, known=1),
    "open": dict(episodes=120, stray=0.5, noise=0.05, known=1, tries=0.04),
    "putnext": dict(episodes=80, stray=0.5, noise=0.05, known=2),
    "pick-up-seq-go-to": dict(episodes=150, stray=0.6, noise=0.05, known=3),
}
LONGEST_MEMORY = 3  # turns
# Constant passages and phrases, one token each: they make a prompt five times shorter.
PASSAGES = [
    *("Observation:\n", "Current Observation:\n", f"\n\n{THINK_ACT}", SYSTEM_BEFORE, SYSTEM_AFTER),
    *("THINK:", "\nACTION:", "I do not see the", "a wall"),
    *(f" {steps} {way}" for steps in ("step", "steps") for way in ("forward", "left", "right")),
]
HANDS = ("pick up", "drop", "toggle")


class Player:
    def __init__(self, task: str, rng, noise=0.0, known=6, tries=0.0, stray=0.0):
        self.task, self.rng = task, rng
        self.noise, self.tries, self.stray = noise, tries, stray
        self.known = COLOR_NAMES[:known]
        self.actions = FAMILIES["babyai"].actions
        self.env = BabyAI(task)

    def start(self) -> None:
        self.bot, self.action = expert(self.env.level, self.task), None
        doors = (thing for thing in self.env.level.grid.grid if thing and thing.type == "door")
        self.door = next((door.color for door in doors if door.is_locked), None)

    def respond(self, text: str) -> tuple[str, str] | None:
        try:
            wanted = int(self.bot.replan(self.action))
        except Exception:  # the bot gives up where a random action made it unsolvable
            return None
        if wanted >= len(self.actions):  # it believes that it is done
            return None
        said = thought(self.env.level.mission, text)
        chosen = self.fail(said, self.actions[wanted])
        executed = self.any_action() if self.rng.random() < self.stray else chosen
        self.action = self.actions.index(executed)
        return tuple(f"THINK: {said}\nACTION: {action}" for action in (chosen, executed))

    def fail(self, said: str, wanted: str) -> str:
        """What it does instead of what its bot wants."""
        if self.rng.random() < self.noise:
            return self.any_action()
        # "the key" and "the door" are of the locked door's colour
        colour = next((word for word in said.split() if word in COLOR_NAMES), self.door)
        if colour in self.known or self.rng.random() < self.tries:
            return wanted
        lost = said.startswith("I do not see")
        return "go forward" if lost or wanted in HANDS else wanted

    def any_action(self) -> str:
        return self.actions[self.rng.integers(len(self.actions))]


def expert(level, task: str) -> BabyAIBot:
    """The bot, without its habit of dropping what a pickup mission wants held."""
    bot = BabyAIBot(level)
    if task in ("pickup", "pick-up-seq-go-to"):
        bot.stack = [goal for goal in bot.stack if not isinstance(goal, DropSubgoal)]
    return bot


def thought(mission: str, text: str) -> str:
    """Where the thing is that the mission wants next, in words of the observation."""
    lines = text.split("\n")
    carried = next((line[12:] for line in lines if line.startswith("You carry a ")), None)
    wanted = wanted_things(mission)
    if carried and len(wanted) > 1:
        wanted = wanted[1:] if carried.endswith(wanted[0]) else wanted[:1]
    name = wanted[0]
    if carried and carried.endswith(name):
        return f"I carry the {name}."
    for line in lines:
        words = line.split()
        if words[0] != "a":
            continue
        for cut in range(2, len(words)):
            if " ".join(words[1:cut]).endswith(name):
                return f"the {name} is {' '.join(words[cut:])}."
    return f"I do not see the {name}."


def wanted_things(mission: str) -> list[str]:
    """The things of a mission in the order in which they are needed, without articles."""
    if " after you " in mission:
        later, first = mission.split(" after you ")
        mission = f"{first}, then {later}"
    if mission.startswith("open "):
        return ["key", "door"]
    for words in ("pick up ", "go to ", "put ", "then "):
        mission = mission.replace(words, "")
    parts = mission.replace(" next to ", ", ").split(", ")
    return [part.split(" ", 1)[1] for part in parts]
