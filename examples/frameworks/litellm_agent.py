"""LiteLLM: completion() in a loop, plain and streamed."""

import json

import litellm

from examples.frameworks.sums import MAX_TURNS, SYSTEM, begin, calculate

litellm.telemetry = False
NUMBER = {"type": "integer"}
PARAMETERS = {
    "type": "object",
    "properties": {"a": NUMBER, "operation": {"type": "string"}, "b": NUMBER},
    "required": ["a", "operation", "b"],
}
FUNCTION = {"name": "calculate", "description": "Calculates.", "parameters": PARAMETERS}


def solve(seed, base_url, api_key, reward):
    return work(seed, dict(api_base=base_url, api_key=api_key))


def streamed(seed, base_url, api_key, reward):
    return work(seed, dict(api_base=base_url, api_key=api_key, stream=True))


def work(seed, options) -> float:
    task, question = begin(seed)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    tools = [{"type": "function", "function": FUNCTION}]
    for _ in range(MAX_TURNS):
        answer = litellm.completion(
            model="openai/policy", messages=messages, tools=tools, **options
        )
        if options.get("stream"):
            answer = litellm.stream_chunk_builder(list(answer))
        reply = answer.choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return task.reward(reply.content)
        for call in reply.tool_calls:
            result = calculate(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return 0.0
