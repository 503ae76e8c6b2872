"""Questions that need a tool: two to four steps with a calculator for two numbers.

    Start with 17.
    Step 1: add 25.
    Step 2: multiply by 2.

A turn is one call, whose result the next call needs, or the answer, as in "ANSWER: 84".
"""

import re

from envs.tools.tool_env import ToolEnv

RANGE = range(100)  # of all numbers, so that each can be one token of a small vocabulary
WORDS = {"add": "add", "subtract": "subtract", "multiply": "multiply by"}
ANSWER = re.compile(r"ANSWER:\s*(\d{1,9})\s*$")  # int() refuses thousands of digits


class Calculator(ToolEnv):
    """The right answer pays 1 and a wrong one 0; both end the episode."""

    family = "calculator"
    tools = ("calculate",)
    max_turns = 8
    tool_timeout = 0.0  # the calculator is fast and needs no thread
    system = (
        "You work out a result step by step. Call the tool once in each turn, with the result of "
        'the step before. When all steps are done, say the last result, as in "ANSWER: 12".'
    )

    def question(self, seed: int) -> str:
        """Draw a question whose correct results all lie in RANGE."""
        rng = self.np_random
        self.start = self.answer = int(rng.integers(2, 31))
        self.chain = []  # (operation, number) of each step
        for _ in range(rng.integers(2, 5)):
            operation, number = draw_step(self.answer, rng)
            self.answer = compute(self.answer, operation, number)
            self.chain.append((operation, number))
        steps = (f"Step {k}: {WORDS[name]} {b}." for k, (name, b) in enumerate(self.chain, 1))
        return "\n".join([f"Start with {self.start}.", *steps])

    def reward(self, answer: str) -> float:
        match = ANSWER.search(answer)
        return float(match is not None and int(match[1]) == self.answer)

    def calculate(self, a: int, operation: str, b: int) -> dict:
        """Calculate with two whole numbers from 0 to 99.

        Args:
            a: The first number.
            operation: What is done with them. (choices: ["add", "subtract", "multiply"])
            b: The second number: it is added to the first, subtracted from it, or multiplied by it.
        """
        result = compute(a, operation, b)
        if result not in RANGE:
            raise ValueError("the result is not a number from 0 to 99")
        return {"result": result}


def draw_step(value: int, rng) -> tuple[str, int]:
    """Draw an operation and a number that turn `value` into a result from 1 to 99."""
    numbers = {
        "add": range(1, RANGE.stop - value),
        "subtract": range(1, value),
        "multiply": range(2, min(9, RANGE[-1] // value) + 1),
    }
    names = [name for name in WORDS if numbers[name]]
    name = names[rng.integers(len(names))]
    return name, int(rng.choice(numbers[name]))


def compute(a: int, operation: str, b: int) -> int:
    return {"add": a + b, "subtract": a - b, "multiply": a * b}[operation]
