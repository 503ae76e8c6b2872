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
    """Work out the question of a seed; return the reward and, as a metric, the number of calls."""
    task, calls = Calculator(), 0
    question, _ = task.reset(seed=seed)
    messages = [
        {"role": "system", "content": task.system},
        {"role": "user", "content": question},
    ]
    with OpenAI(base_url=base_url, api_key=api_key) as client:
        for _ in range(TURNS):
            message = stream_message(client, model, messages, task.template["tools"])
            messages.append(message)
            if "tool_calls" not in message:
                return {"reward": task.reward(message["content"]), "metrics": {"calls": calls}}
            for call in message["tool_calls"]:
                calls += 1
                result = run(task, call["function"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return {"reward": 0.0, "metrics": {"calls": calls}}


def stream_message(client: OpenAI, model: str, messages: list[dict], tools: list[dict]) -> dict:
    """Return the assistant's message, assembled from the chunks of a stream."""
    content, calls = "", {}
    with client.chat.completions.create(
        model=model, messages=messages, tools=tools, stream=True
    ) as stream:
        for chunk in stream:
            for delta in (choice.delta for choice in chunk.choices):
                content += delta.content or ""
                for part in delta.tool_calls or []:
                    call = calls.setdefault(part.index, {"name": "", "arguments": ""})
                    call["id"] = part.id or call.get("id")
                    call["name"] += part.function.name or ""
                    call["arguments"] += part.function.arguments or ""
    message = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": call.pop("id"), "type": "function", "function": call} for call in calls.values()
        ]
    return message


def run(task: Calculator, function: dict) -> str:
    """Return the calculator's result, or an error text from which the model can learn."""
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
    server = dict(base_url=args.base_url, api_key=args.api_key, model=args.model)
    # Outside of training nobody collects rewards, so `reward` may be any function.
    rewards = [solve(seed, reward=abs, **server)["reward"] for seed in range(args.episodes)]
    print(f"{sum(rewards):g} of {len(rewards)} answers are right")
