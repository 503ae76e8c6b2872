"""AutoGen: an AssistantAgent with a tool."""

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

from examples.frameworks.sums import MAX_TURNS, SYSTEM, begin, calculate

MODEL = dict(vision=False, function_calling=True, json_output=True, family="unknown",
             structured_output=True, multiple_system_messages=True)  # fmt: skip


async def solve(seed, base_url, api_key, reward):
    task, question = begin(seed)
    client = OpenAIChatCompletionClient(
        model="policy", base_url=base_url, api_key=api_key, model_info=MODEL
    )
    agent = AssistantAgent(
        "sums", client, tools=[calculate], system_message=SYSTEM, max_tool_iterations=MAX_TURNS
    )
    result = await agent.run(task=question)
    return task.reward(str(result.messages[-1].content))
