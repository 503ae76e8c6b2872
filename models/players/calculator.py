"""A player of tools-calculator that copies numbers without a mistake and chooses badly.

Its thoughts are right: they name the step and its operation. Its calls are often wrong: it adds
where it should multiply or subtract. Now and then it skips a step or answers a step early.
Reinforcement learning corrects such choices quickly. It would not correct wrong copies: sampling
hardly ever finds the right number among a hundred.
"""

import json

from envs.tools.calculator import RANGE, WORDS, Calculator

# adds: share of the multiplications and subtractions in which it adds
# skips: share of the turns in which it skips a step
# early: share of the last steps that it leaves out, answering instead
TASKS = {"calculator": dict(episodes=6000, adds=0.4, skips=0.05, early=0.15, stray=0.05)}
LONGEST_MEMORY = 8
DONE = "All steps are done.\nANSWER:"
TOOLS = "".join(
    f"\n{json.dumps(tool['function'], ensure_ascii=False)}"
    for tool in Calculator().template["tools"]
)


def thought(k: int, operation: str) -> str:
    return f"Step {k} is to {operation}."


# Each number is one token, with the space before it, and follows a token that tells which number it
# is. So copies are short and easy to find.
PASSAGES = [
    *(f"{Calculator.system}\n\n# Tools{TOOLS}", "<|im_start|>tool\n", "Start with"),
    *(f".\nStep {k}: {words}" for k in range(1, 5) for words in WORDS.values()),
    *(thought(k, name) for k in range(1, 5) for name in WORDS),
    '\n<tool_call>\n{"name": "calculate", "arguments": {"a":',
    *(f', "operation": "{name}", "b":' for name in WORDS),
    *("}}\n</tool_call>", '{"result":', DONE),
    "Error: the result is not a number from 0 to 99",
    *(f" {number}" for number in RANGE),
]


class Player:
    def __init__(self, task: str, rng, adds=0.0, skips=0.0, early=0.0, stray=0.0):
        self.rng, self.adds, self.skips, self.early, self.stray = rng, adds, skips, early, stray
        self.env = Calculator()

    def start(self) -> None:
        self.value, self.done = self.env.start, 0  # done: the number of steps done or skipped

    def respond(self, text: str) -> tuple[str, str]:
        if text.startswith("Error"):
            self.done = self.before
        elif text.startswith("{"):
            self.value = json.loads(text)["result"]
        self.before = self.done
        left = len(self.env.chain) - self.done
        if left == 0 or (self.done and left == 1 and self.happens(self.early)):
            return (f"{DONE} {self.value}",) * 2
        self.done += left > 1 and self.happens(self.skips)
        operation, number = self.env.chain[self.done]
        self.done += 1
        reasoning = thought(self.done, operation)
        chosen = "add" if self.happens(self.adds) else operation
        executed = self.any_operation() if self.happens(self.stray) else chosen
        return tuple(call(reasoning, self.value, name, number) for name in (chosen, executed))

    def happens(self, share: float) -> bool:
        return self.rng.random() < share

    def any_operation(self) -> str:
        return list(WORDS)[self.rng.integers(len(WORDS))]


def call(reasoning: str, a: int, operation: str, b: int) -> str:
    arguments = {"a": a, "operation": operation, "b": b}
    tool_call = json.dumps({"name": "calculate", "arguments": arguments})
    return f"{reasoning}\n<tool_call>\n{tool_call}\n</tool_call>"
