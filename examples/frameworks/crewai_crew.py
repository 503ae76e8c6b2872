"""CrewAI: a crew of one agent with a tool."""

import os

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")

from crewai import LLM, Agent, Crew, Task  # noqa: E402
from crewai.tools import tool  # noqa: E402

from examples.frameworks import sums  # noqa: E402

calculate = tool("calculate")(sums.calculate)


def solve(seed, base_url, api_key, reward):
    task, question = sums.begin(seed)
    llm = LLM(model="openai/policy", base_url=base_url, api_key=api_key)
    agent = Agent(
        role="Sums", goal="The right result.", backstory=sums.SYSTEM, llm=llm, tools=[calculate],
        max_iter=sums.MAX_TURNS,
    )  # fmt: skip
    job = Task(description=question, expected_output="ANSWER: 12", agent=agent)
    return task.reward(str(Crew(agents=[agent], tasks=[job]).kickoff()))
