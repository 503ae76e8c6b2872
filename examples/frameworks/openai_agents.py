"""openai-agents: the default, which asks the Responses API, and its chat model."""

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from examples.frameworks.sums import MAX_TURNS, SYSTEM, begin, calculate

set_tracing_disabled(True)  # else it sends what happens to OpenAI


async def solve(seed, base_url, api_key, reward):
    model = OpenAIResponsesModel("policy", AsyncOpenAI(base_url=base_url, api_key=api_key))
    task, question = begin(seed)
    result = await Runner.run(agent(model), question, max_turns=MAX_TURNS)
    return task.reward(str(result.final_output))


async def chat(seed, base_url, api_key, reward):
    model = OpenAIChatCompletionsModel("policy", AsyncOpenAI(base_url=base_url, api_key=api_key))
    task, question = begin(seed)
    result = await Runner.run(agent(model), question, max_turns=MAX_TURNS)
    return task.reward(str(result.final_output))


async def streamed(seed, base_url, api_key, reward):
    model = OpenAIResponsesModel("policy", AsyncOpenAI(base_url=base_url, api_key=api_key))
    task, question = begin(seed)
    result = Runner.run_streamed(agent(model), question, max_turns=MAX_TURNS)
    async for _ in result.stream_events():
        pass
    return task.reward(str(result.final_output))


def agent(model) -> Agent:
    return Agent("Sums", instructions=SYSTEM, model=model, tools=[function_tool(calculate)])
