"""The task of the programs in this folder: sums with a calculator (`envs.tools.calculator`)."""

from typing import Literal

from envs.tools.calculator import Calculator, compute

SYSTEM = Calculator.system
MAX_TURNS = 8


def calculate(a: int, operation: Literal["add", "subtract", "multiply"], b: int) -> str:
    """Calculate with two whole numbers.

    Args:
        a: The first number.
        operation: What is done with them.
        b: The second number.
    """
    return str(compute(a, operation, b))


def begin(seed: int) -> tuple[Calculator, str]:
    """Return the task of a seed, whose `reward` judges an answer, and its question."""
    task = Calculator()
    question, _ = task.reset(seed=seed)
    return task, question
