"""An agent with the plain OpenAI SDK, which streams its answers.

    python main.py --env-name agent:examples.openai_agent:solve
    python -m examples.openai_agent --base-url http://127.0.0.1:8000/v1 --episodes 20

It works out the same sums as `examples.langgraph_agent`, and needs `pip install -e .[agents]`.
"""

import argparse
import json

from openai import OpenAI

from envs.tools.calculator import Calculator

TURNS = 8


def solve(seed: int, base_url: str, api_key: str, reward, model: str = "policy") -> dict:
    """Work out the question of a seed. Returns the reward and, as a figure, the calls it took."""
    task, calls = Calculator(), 0
    question, _ = task.reset(seed=seed)
    messages = [
        {"role": "system", "content": task.system},
        {"role": "user", "content": question},
    ]
    with OpenAI(base_url=base_url, api_key=api_key) as client:
        for _ in range(TURNS):
            said = streamed(client, model, messages, task.template["tools"])
            messages.append(said)
            if "tool_calls" not in said:
                return {"reward": task.reward(said["content"]), "metrics": {"calls": calls}}
            for call in said["tool_calls"]:
                calls += 1
                result = run(task, call["function"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return {"reward": 0.0, "metrics": {"calls": calls}}


def streamed(client: OpenAI, model: str, messages: list[dict], tools: list[dict]) -> dict:
    """Return the assistant's message, put together from the pieces of a stream."""
    content, calls = "", {}
    with client.chat.completions.create(
        model=model, messages=messages, tools=tools, stream=True
    ) as stream:
        for piece in stream:
            for delta in (choice.delta for choice in piece.choices):
                content += delta.content or ""
                for part in delta.tool_calls or []:
                    call = calls.setdefault(part.index, {"name": "", "arguments": ""})
                    call["id"] = part.id or call.get("id")
                    call["name"] += part.function.name or ""
                    call["arguments"] += part.function.arguments or ""
    said = {"role": "assistant", "content": content}
    made = [{"id": call.pop("id"), "type": "function", "function": call} for call in calls.values()]
    return said | ({"tool_calls": made} if made else {})


def run(task: Calculator, function: dict) -> str:
    """Return what the calculator says to a call; a mistake of the model's is told to it."""
    try:
        return json.dumps(task.calculate(**json.loads(function["arguments"])))
    except (ValueError, TypeError, KeyError) as error:
        return f"Error: {error}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--model", default="policy")
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()
    given = dict(base_url=args.base_url, api_key=args.api_key, model=args.model)
    paid = [solve(seed, reward=abs, **given)["reward"] for seed in range(args.episodes)]
    print(f"{sum(paid):g} of {len(paid)} answers are right")
