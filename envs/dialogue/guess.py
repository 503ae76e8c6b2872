"""A user has a number in mind and answers in words until the agent has guessed it.

Seven guesses are enough for an agent that halves the range, and too few for one that tries one
number after another. Each guess is rewarded for the numbers that it rules out.
"""

import math
import re

from envs.dialogue.dialogue_env import Dialogue

LARGEST = 50
NUMBER = re.compile(r"(?<![0-9])[0-9]{1,4}(?![0-9])")
ANSWERS = {
    True: ("{} is too small.", "{}? Mine is larger."),  # the guess is below the number
    False: ("{} is too large.", "{}? Mine is smaller."),
}
LEFT = " Guesses left: {}."


class Guess(Dialogue):
    """dialogue-guess: the last number in the agent's message is its guess.

    Finding the number pays 1. In addition, a guess that leaves m of n possible numbers pays
    log((n + 1) / (m + 1)) / log(51), where m = 0 if it is right. So every dialogue in which the
    number is found pays 2 in all.
    """

    family = "guess"
    system = f"A user has a number from 1 to {LARGEST} in mind. Find out which one."
    max_turns = 7

    def open(self, seed: int | None) -> str:
        self.number = int(self.np_random.integers(1, LARGEST + 1))
        self.above, self.below = 0, LARGEST + 1  # the answers' bounds, exclusive
        self.guesses = self.wasted = 0
        return "I have a number in mind. Can you guess it?" + LEFT.format(self.max_turns)

    def user(self, history: list[dict]) -> tuple[str, float, bool]:
        numbers = NUMBER.findall(history[-1]["content"])
        left = LEFT.format(self.max_turns - self.turns)
        if not numbers:
            return "Please name a number." + left, 0.0, False
        guess, before = int(numbers[-1]), self.possible()
        self.guesses += 1
        self.wasted += not self.above < guess < self.below
        if guess == self.number:
            return f"Yes, it is {guess}!", 1.0 + _share(before, 0), True
        too_small = guess < self.number
        if too_small:
            self.above = max(self.above, guess)
        else:
            self.below = min(self.below, guess)
        answer = ANSWERS[too_small][self.np_random.integers(2)].format(guess)
        return answer + left, _share(before, self.possible()), False

    def possible(self) -> int:
        """Return how many numbers are still possible."""
        return self.below - self.above - 1

    def episode_metrics(self) -> dict[str, float]:
        """wasted_guesses: share of the guesses that earlier answers had ruled out"""
        return {"wasted_guesses": self.wasted / max(1, self.guesses)}


def _share(before: int, after: int) -> float:
    """Return the share of the whole search that reduces the numbers from `before` to `after`."""
    return math.log((before + 1) / (after + 1)) / math.log(LARGEST + 1)
