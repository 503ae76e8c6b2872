"""A LangGraph agent that works out sums with a calculator, written as for production.

    model --> does it call the tool? --yes--> tools --> model --> ...
                                     --no---> the end

The same file is trained, and runs against any OpenAI-compatible server:

    python main.py --env-name agent:examples.langgraph_agent:solve
    python -m reports.serve runs/RUN --port 8000
    python -m examples.langgraph_agent --base-url http://127.0.0.1:8000/v1 --api-key KEY

`serve` prints the KEY.

It needs `pip install -e .[agents]`.
"""

import argparse
from typing import Literal

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from envs.tools.calculator import RANGE, Calculator, compute

TURNS = 8  # of the model
# The embedded model knows this description of the tool alone. A pretrained model reads any
# description, so `bind_tools([calculate])` is enough for it.
SCHEMAS = Calculator().template["tools"]


@tool
def calculate(a: int, operation: Literal["add", "subtract", "multiply"], b: int) -> dict:
    """Calculate with two whole numbers from 0 to 99."""
    result = compute(a, operation, b)
    if result not in RANGE:
        raise ValueError("the result is not a number from 0 to 99")
    return {"result": result}


def build(base_url: str, api_key: str, model: str = "policy"):
    """Return the compiled graph around a chat model."""
    llm = ChatOpenAI(base_url=base_url, api_key=api_key, model=model).bind_tools(SCHEMAS)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([calculate], handle_tool_errors=lambda e: f"Error: {e}"))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", calls_a_tool, {True: "tools", False: END})
    graph.add_edge("tools", "model")
    return graph.compile()


def calls_a_tool(state: MessagesState) -> bool:
    return bool(state["messages"][-1].tool_calls)


def solve(seed: int, base_url: str, api_key: str, reward, model: str = "policy") -> float:
    """Work out the question of a seed; return 1 for the right answer and 0 for a wrong one."""
    task = Calculator()
    question, _ = task.reset(seed=seed)
    messages = [SystemMessage(Calculator.system), HumanMessage(question)]
    graph = build(base_url, api_key, model)
    try:
        # Each turn of the model is a step of the graph, and each tool call is another one.
        end = graph.invoke({"messages": messages}, {"recursion_limit": 2 * TURNS})
    except GraphRecursionError:
        return 0.0
    return task.reward(end["messages"][-1].text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--model", default="policy")
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()
    server = dict(base_url=args.base_url, api_key=args.api_key, model=args.model)
    # Outside of training nobody collects rewards, so `reward` may be any function.
    rewards = [solve(seed, reward=abs, **server) for seed in range(args.episodes)]
    print(f"{sum(rewards):g} of {len(rewards)} answers are right")
