"""An environment as users of verifiers write it: `agent:verifiers:verifiers-sums`."""

import verifiers as vf
from datasets import Dataset


def right(completion, answer, **kwargs) -> float:
    return float(completion[-1]["content"].strip() == answer)


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def load_environment():
    rows = [{"question": f"What is {k} + 1?", "answer": str(k + 1)} for k in range(5)]
    rubric = vf.Rubric(funcs=[right])
    return vf.ToolEnv(dataset=Dataset.from_list(rows), rubric=rubric, tools=[add], max_turns=3)
