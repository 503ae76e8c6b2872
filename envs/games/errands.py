"""Errands along a street: a list that is read out once, and needed until the last door.

The first observation names places in an order, each with a word. The agent walks to each of them,
rings, and says the word at the door. A bell at the wrong place, or a wrong word, ends the episode.
Every observation tells which way each place is, so walking needs no memory, and nothing else tells
what is to be done. `TASKS` sets for how many turns the list is needed.
"""

from dataclasses import dataclass

from common.plugins import UserError
from envs.text_env import TextEnv

PLACES = ("mill", "inn", "forge", "chapel", "bakery")  # all of them are on the street
WORDS = ("red", "green", "blue", "white")
TOLD = "Your errands, in this order: "
ONCE = "You will not be told again."
ASKS = "A voice at the door asks for the word."
THANKS = "Thank you! This errand is done."
OVER = "Nobody expected you. Your errands are over."
RULES = """\
You run errands along a street. At the start you are told your errands in their order: each is a \
place where you ring, and the word that you say there. You are told only once.

Each turn you take one of these actions:
go east: walk one step east,
go west: walk one step west,
ring: ring the bell of the place where you are,
say red, say green, say blue, say white: answer the voice at the door, which asks once,
wait: do nothing.

Ring only where your next errand is, and say only its word: a mistake ends your errands."""


@dataclass(frozen=True)
class Task:
    """errands: their number K; apart: steps between two neighbouring places. Two places are two
    neighbours apart in the mean, so the way takes K (2 apart + 2) turns. limit: of turns"""

    errands: int
    apart: int
    limit: int


TASKS = {  # turns of the way
    "6": Task(1, 2, 24),
    "12": Task(2, 2, 40),
    "20": Task(2, 4, 64),
    "60": Task(5, 5, 192),
    "200": Task(10, 9, 640),
}


class Errands(TextEnv):
    """One of `tasks`. Each errand pays its share of 1; the episode is a success if all are done."""

    family = "errands"
    tasks = tuple(TASKS)
    actions = ("go east", "go west", "ring", *(f"say {word}" for word in WORDS), "wait")
    default_action = "wait"
    near_misses = {
        "go east": ["east", "walk east", "move east"],
        "go west": ["west", "walk west", "move west"],
        "ring": ["ring bell", "ring at door"],
        "wait": ["do nothing", "stay"],
        **{f"say {word}": [word, f"answer {word}"] for word in WORDS},
    }

    def __init__(
        self, task: str, format_penalty: float = 0.1, max_episode_steps: int | None = None
    ):
        if task not in TASKS:
            raise UserError(f"unknown errands {task!r}; choices: {', '.join(TASKS)}")
        self.task = TASKS[task]
        super().__init__(max_episode_steps or self.task.limit, format_penalty)

    def _start(self) -> str:
        K, rng = self.task.errands, self.np_random
        order = rng.permutation(len(PLACES)).tolist()  # from west to east
        self.street = {PLACES[k]: n * self.task.apart for n, k in enumerate(order)}
        route = [int(rng.integers(len(PLACES)))]
        while len(route) <= K:  # never twice in a row at one place
            route.append((route[-1] + int(rng.integers(1, len(PLACES)))) % len(PLACES))
        words = [WORDS[k] for k in rng.integers(len(WORDS), size=K)]
        start, *goals = (PLACES[k] for k in route)
        self.errands = list(zip(goals, words, strict=True))
        self.position, self.done, self.asked = self.street[start], 0, False
        listed = ", ".join(map(" ".join, self.errands))
        return self._text(f"{TOLD}{listed}.\n{ONCE}")

    def _act(self, action: str) -> tuple[str, float, bool, bool]:
        here, (goal, word) = self.place(), self.errands[self.done]
        asked, self.asked = self.asked, False
        verb, _, rest = action.partition(" ")
        if verb == "go":
            step = 1 if rest == "east" else -1
            self.position = min(max(self.position + step, 0), max(self.street.values()))
        elif verb == "ring" and here:
            self.asked = here == goal
            return self._text(ASKS if self.asked else OVER), 0.0, not self.asked, False
        elif verb == "say" and asked:
            self.done += rest == word
            over = rest != word or self.done == len(self.errands)
            reward = (rest == word) / len(self.errands)
            return self._text(THANKS if rest == word else OVER), reward, over, reward > 0 and over
        return self._text(), 0.0, False, False

    def place(self) -> str | None:
        """Return the place where the agent is, None on the street between two."""
        return next((name for name, at in self.street.items() if at == self.position), None)

    def _text(self, news: str = "") -> str:
        place = self.place()
        here = f"You are at the {place}." if place else "You are on the street."
        steps = {name: at - self.position for name, at in self.street.items() if name != place}
        ways = [
            f"{name} {'east' if n > 0 else 'west'} {abs(n)}"
            for name, n in sorted(steps.items(), key=lambda pair: abs(pair[1]))
        ]
        return "\n".join(filter(None, (news, here, f"Ways: {', '.join(ways)}")))

    def kept(self, text: str) -> str:
        return text.partition("\nWays:")[0]  # the ways lead from where the agent was

    def episode_metrics(self) -> dict[str, float]:
        return {"errands_done": self.done / len(self.errands)}

    def system_prompt(self) -> str:
        return RULES
