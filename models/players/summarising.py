"""A player of `examples.summarising_agent` that guesses without a plan and forgets when it sums up.

Its thoughts are right: they name the bounds that its prompt tells, by answers or by its summary. It
guesses any number between them, and three of four summaries say nothing, so that it begins anew.
"""

import re

from envs import make_env
from examples.summarising_agent import RULES, SUM_UP

TASK = "agent:examples.summarising_agent:solve"
TASKS = {TASK: dict(episodes=2000, forgets=0.75, stray=0.7)}
MEMORIES = [("verbatim", 0)]
FORGOTTEN = "I know nothing."
KNOWN = "above {}, below {}"
THOUGHT = "<think>above {}, below {}</think>\n{}"
# As one token each, these passages and numbers make a guess 6 tokens long.
PASSAGES = [
    *(RULES, SUM_UP, FORGOTTEN, "Guess.", "\nGuess.", "You know this: ", "Please say a number."),
    *("The hidden number is above ", "The hidden number is below ", "<think>above ", "</think>\n"),
    *("above ", ", below ", *(str(number) for number in range(-1, 101))),
]
BOUND = re.compile(r"(above|below) (-?\d+)")


class Player:
    """forgets: share of summaries that say nothing; stray: share of these in whose place good ones
    are executed, so that a clone sees prompts with what is known"""

    def __init__(self, task: str, rng, forgets=0.0, stray=0.0):
        self.env, self.rng = make_env(task, timeout=60), rng
        self.forgets, self.stray = forgets, stray

    def start(self) -> None:
        """An episode has begun; the player knows only prompts."""

    def respond(self, messages: list[dict]) -> tuple[str, str]:
        above, below = bounds(messages)
        if messages[-1]["content"] != SUM_UP:
            guess = self.rng.integers(above + 1, max(below, above + 2))
            return (THOUGHT.format(above, below, guess),) * 2
        known = KNOWN.format(above, below)
        learnt = FORGOTTEN if self.rng.random() < self.forgets else known
        return learnt, known if self.rng.random() < self.stray else learnt


def bounds(messages: list[dict]) -> tuple[int, int]:
    """Return the numbers that the prompt says the hidden one is above and below of."""
    above, below = -1, 100
    for message in messages:
        if message["role"] == "user":
            for side, number in BOUND.findall(message["content"]):
                if side == "above":
                    above = max(above, int(number))
                else:
                    below = min(below, int(number))
    return above, below
