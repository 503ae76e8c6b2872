"""A player of dialogue-guess that knows what is possible, and then guesses without a plan.

Its thoughts are right: they say between which numbers the user's number is. Half of its guesses
are the smallest number that is possible, as if it counted; the others are any possible number. It
never takes the middle on purpose.
"""

import re

from envs.guess import ANSWERS, LARGEST, Guess

# counting: share of the turns in which it guesses the smallest possible number
# `stray` executes any possible number, so that the clone sees dialogues that do not count.
TASKS = {"dialogue-guess": dict(episodes=3000, counting=0.5, stray=0.3)}
LONGEST_MEMORY = 8
# As one token each, these passages and numbers make a turn 13 tokens long.
PASSAGES = [
    *(Guess.system, "I have a number in mind. Can you guess it?"),
    *("<think>above ", ", below ", "</think>\nIs it "),
    *(words.removeprefix("{}") for both in ANSWERS.values() for words in both),
    *(str(number) for number in range(LARGEST + 2)),
]
ANSWER = re.compile(r"(\d+)(?: is too|\? Mine is) (small|larger|large|smaller)\.")


class Player:
    def __init__(self, task: str, rng, counting=0.0, stray=0.0):
        self.rng, self.counting, self.stray = rng, counting, stray
        self.env = Guess()

    def start(self) -> None:
        self.above, self.below = 0, LARGEST + 1

    def respond(self, text: str) -> tuple[str, str]:
        answer = ANSWER.fullmatch(text)
        if answer and answer[2] in ("small", "larger"):
            self.above = max(self.above, int(answer[1]))
        elif answer:
            self.below = min(self.below, int(answer[1]))
        said = f"<think>above {self.above}, below {self.below}</think>\nIs it "
        any_guess = int(self.rng.integers(self.above + 1, self.below))
        chosen = self.above + 1 if self.rng.random() < self.counting else any_guess
        other = int(self.rng.integers(self.above + 1, self.below))
        executed = other if self.rng.random() < self.stray else chosen
        return tuple(f"{said}{guess}?" for guess in (chosen, executed))
