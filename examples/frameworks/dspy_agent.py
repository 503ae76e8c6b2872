"""DSPy: a ReAct module. Its tools and its answer are fields of a text."""

import dspy

from examples.frameworks.sums import MAX_TURNS, begin, calculate


def solve(seed, base_url, api_key, reward):
    task, question = begin(seed)
    lm = dspy.LM("openai/policy", api_base=base_url, api_key=api_key, temperature=1.0)
    agent = dspy.ReAct("question -> answer: int", tools=[calculate], max_iters=MAX_TURNS)
    with dspy.context(lm=lm):  # and not dspy.configure, which all agents of a process share
        return task.reward(f"ANSWER: {agent(question=question).answer}")
