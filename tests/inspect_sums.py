"""Tasks as users of Inspect write them: `agent:inspect:inspect_sums.sums`."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool


@tool
def add():
    async def execute(a: int, b: int):
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return str(a + b)

    return execute


@task
def sums():
    samples = [Sample(input=f"What is {k} + 1?", target=str(k + 1)) for k in range(5)]
    return Task(dataset=samples, solver=[use_tools(add()), generate()], scorer=match())
