"""LangChain's create_agent, its stream, and a LangGraph supervisor over a sub-agent."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph_supervisor import create_supervisor

from examples.frameworks.sums import MAX_TURNS, SYSTEM, begin, calculate

LIMIT = {"recursion_limit": 2 * MAX_TURNS}


def solve(seed, base_url, api_key, reward):
    task, question = begin(seed)
    end = worker(base_url, api_key).invoke({"messages": [("user", question)]}, LIMIT)
    return task.reward(end["messages"][-1].text)


def streamed(seed, base_url, api_key, reward):
    task, question = begin(seed)
    text = ""
    asked = {"messages": [("user", question)]}
    for piece, _ in worker(base_url, api_key).stream(asked, LIMIT, stream_mode="messages"):
        text += piece.text
    return task.reward(text)


def supervised(seed, base_url, api_key, reward):
    task, question = begin(seed)
    model = ChatOpenAI(base_url=base_url, api_key=api_key, model="policy")
    team = create_supervisor([worker(base_url, api_key)], model=model, prompt="You hand over.")
    end = team.compile().invoke({"messages": [("user", question)]}, LIMIT)
    return task.reward(end["messages"][-1].text)


def worker(base_url, api_key):
    model = ChatOpenAI(base_url=base_url, api_key=api_key, model="policy")
    return create_agent(model, tools=[calculate], system_prompt=SYSTEM, name="sums")
