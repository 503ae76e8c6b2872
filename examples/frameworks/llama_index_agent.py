"""LlamaIndex: a FunctionAgent, which streams its answers."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from examples.frameworks.sums import SYSTEM, begin, calculate


async def solve(seed, base_url, api_key, reward):
    task, question = begin(seed)
    llm = OpenAILike(
        model="policy",
        api_base=base_url,
        api_key=api_key,
        temperature=1.0,
        is_chat_model=True,
        is_function_calling_model=True,
    )
    agent = FunctionAgent(tools=[calculate], llm=llm, system_prompt=SYSTEM)
    return task.reward(str(await agent.run(question)))
