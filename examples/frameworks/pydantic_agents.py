"""pydantic-ai: tools, its stream, and a typed answer."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from examples.frameworks.sums import SYSTEM, begin, calculate


async def solve(seed, base_url, api_key, reward):
    task, question = begin(seed)
    result = await agent(base_url, api_key).run(question)
    return task.reward(result.output)


async def streamed(seed, base_url, api_key, reward):
    task, question = begin(seed)
    async with agent(base_url, api_key).run_stream(question) as result:
        return task.reward(await result.get_output())


async def structured(seed, base_url, api_key, reward):
    task, question = begin(seed)
    result = await agent(base_url, api_key, output_type=int).run(question)
    return task.reward(f"ANSWER: {result.output}")


def agent(base_url, api_key, **options) -> Agent:
    provider = OpenAIProvider(base_url=base_url, api_key=api_key)
    model = OpenAIChatModel("policy", provider=provider)
    return Agent(model, system_prompt=SYSTEM, tools=[calculate], **options)
