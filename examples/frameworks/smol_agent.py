"""smolagents: a ToolCallingAgent. Its final answer is a tool, too."""

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

from examples.frameworks import sums

calculate = tool(sums.calculate)


def solve(seed, base_url, api_key, reward):
    task, question = sums.begin(seed)
    model = OpenAIServerModel(model_id="policy", api_base=base_url, api_key=api_key)
    agent = ToolCallingAgent(
        tools=[calculate], model=model, max_steps=sums.MAX_TURNS, verbosity_level=0
    )
    return task.reward(f"ANSWER: {agent.run(question)}")
