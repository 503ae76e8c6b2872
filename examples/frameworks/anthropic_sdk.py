"""Anthropic's SDK, plain and streamed."""

from anthropic import Anthropic

from examples.frameworks.sums import MAX_TURNS, SYSTEM, begin, calculate

NUMBER = {"type": "integer"}
TOOL = {
    "name": "calculate",
    "description": "Calculate with two whole numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": NUMBER, "operation": {"type": "string"}, "b": NUMBER},
        "required": ["a", "operation", "b"],
    },
}


def solve(seed, base_url, api_key, reward):
    return work(seed, Anthropic(base_url=base_url, api_key=api_key).messages.create)


def streamed(seed, base_url, api_key, reward):
    client = Anthropic(base_url=base_url, api_key=api_key)

    def ask(**request):
        with client.messages.stream(**request) as stream:
            return stream.get_final_message()

    return work(seed, ask)


def work(seed, ask) -> float:
    task, question = begin(seed)
    messages = [{"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        answer = ask(model="policy", max_tokens=64, system=SYSTEM, messages=messages, tools=[TOOL])
        messages.append({"role": "assistant", "content": answer.content})
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return task.reward(answer.content[-1].text)
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": calculate(**use.input)}
            for use in uses
        ]
        messages.append({"role": "user", "content": results})
    return 0.0
