"""A player of dialogue-guess that knows the possible numbers and then mostly counts.

Its thoughts are right: they name the bounds of the user's number. Its plans are poor: in two turns
of three it tries the smallest possible number, so that an answer rules out little. In the others it
tries any number of the middle third.
"""

import re

from envs.dialogue.guess import ANSWERS, LARGEST, LEFT, Guess

# counting: share of the turns in which it guesses the smallest possible number
# `stray` executes a number in the middle, so that the clone sees the answers to better plans.
TASKS = {"dialogue-guess": dict(episodes=4000, counting=0.65, stray=0.8)}
LONGEST_MEMORY = 8
COUNT = ". I try the next one.</think>\nIs it "
HALVE = ". I try the middle.</think>\nIs it "
# As one token each, these passages and numbers make a turn 14 tokens long.
PASSAGES = [
    *(Guess.system, "I have a number in mind. Can you guess it?"),
    *("<think>above ", ", below ", COUNT, HALVE),
    *(words.removeprefix("{}") for both in ANSWERS.values() for words in both),
    *(LEFT.format(left) for left in range(Guess.max_turns + 1)),
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
        answer = ANSWER.match(text)
        if answer and answer[2] in ("small", "larger"):
            self.above = max(self.above, int(answer[1]))
        elif answer:
            self.below = min(self.below, int(answer[1]))
        counts = self.rng.random() < self.counting
        chosen = self.above + 1 if counts else self.middle()
        executed = self.middle() if self.rng.random() < self.stray else chosen
        reasoning = f"<think>above {self.above}, below {self.below}{COUNT if counts else HALVE}"
        return tuple(f"{reasoning}{guess}?" for guess in (chosen, executed))

    def middle(self) -> int:
        """Return any of the middle third of the possible numbers; of two numbers, the first."""
        possible = self.below - self.above - 1
        if possible <= 2:
            return self.above + 1
        margin = possible // 3
        return int(self.rng.integers(self.above + 1 + margin, self.below - margin))
