"""Haystack: an Agent around OpenAIChatGenerator."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from examples.frameworks.sums import MAX_TURNS, SYSTEM, begin, calculate


def solve(seed, base_url, api_key, reward):
    task, question = begin(seed)
    generator = OpenAIChatGenerator(
        model="policy", api_base_url=base_url, api_key=Secret.from_token(api_key)
    )
    agent = Agent(
        chat_generator=generator,
        tools=[create_tool_from_function(calculate)],
        system_prompt=SYSTEM,
        max_agent_steps=MAX_TURNS,
    )
    end = agent.run(messages=[ChatMessage.from_user(question)])
    return task.reward(end["messages"][-1].text or "")
