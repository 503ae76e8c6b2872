"""What an agent's program gets from the endpoint: OpenAI's chat completions.

A response of the policy is taken apart as the request allows, and put into the form that SDKs read.
"""

import json
from dataclasses import replace

from common.calls import Message, read
from common.chat import END_OF_THOUGHT, THINK, after_thought
from envs.agents.requests import Request
from envs.tools.schemas import converted

POLICY = "policy"  # the name of the model that is trained


def heard(request: Request, response: str) -> Message:
    """Take a response apart as the program will see it."""
    text = _until_stop(request, response)
    message = read(text)
    if not request.tools and message.at < len(text) and (message.calls or message.error):
        start = after_thought(text)  # without tools, what looks like a call is words
        return Message(text.strip(), text[start:].strip(), start)
    calls = [_typed(call, request.tools.get(call["name"])) for call in message.calls]
    return replace(message, calls=tuple(calls if request.parallel else calls[:1]))


def _until_stop(request: Request, response: str) -> str:
    places = [response.find(stop) for stop in request.stop if stop in response]
    return str(response)[: min(places, default=None)]


def _typed(call: dict, tool: dict | None) -> dict:
    """Turn the values of a call into what the tool's schema says, where all of them are texts."""
    schema = (tool or {}).get("function", {}).get("parameters") or {}
    return call | {"arguments": converted(call, schema.get("properties") or {})}


def completion(request: Request, response: str, message: Message, turn: int, tokens: int) -> dict:
    """Return the answer to a request, as POST /v1/chat/completions gives it.

    response: with `truncated`, if the response limit may have cut it; message: what was `heard`
    turn: number of the turn in the episode; ids of calls come from it, so replays have the same
    tokens: of the response, for the usage
    """
    calls = [
        {
            "id": f"call{turn % 1000:03d}{k % 100:02d}",
            "type": "function",
            "function": {
                "name": _valid(call["name"]),
                "arguments": _valid(json.dumps(call["arguments"], ensure_ascii=False)),
            },
        }
        for k, call in enumerate(message.calls)
    ]
    said = {"role": "assistant", "content": message.answer or ("" if not calls else None)}
    thought = message.content.partition(END_OF_THOUGHT)
    if thought[1]:
        said["reasoning_content"] = thought[0].replace(THINK, "").strip()
    if message.error:  # the text as it is, as servers without a parser give it
        said["content"] = message.content
    if calls:
        said["tool_calls"] = calls
    whole = _until_stop(request, response) != response or not getattr(response, "truncated", False)
    reason = "tool_calls" if whole and calls else "stop" if whole else "length"
    usage = dict(prompt_tokens=request.tokens, completion_tokens=tokens)
    return {
        "id": f"turn-{turn}",
        "object": "chat.completion",
        "created": 0,
        "model": POLICY,
        "choices": [{"index": 0, "message": said, "finish_reason": reason}],
        "usage": usage | {"total_tokens": request.tokens + tokens},
    }


def _valid(text: str) -> str:
    """Replace half of a surrogate pair, which a response may hold in JSON: SDKs cannot send it."""
    return text.encode("utf-8", "replace").decode()


def together(answers: list[dict]) -> dict:
    """Return the answers to one request (n > 1) as one completion."""
    choices = [answer["choices"][0] | {"index": k} for k, answer in enumerate(answers)]
    usage = answers[0]["usage"]
    sampled = sum(answer["usage"]["completion_tokens"] for answer in answers)
    usage = usage | dict(completion_tokens=sampled, total_tokens=usage["prompt_tokens"] + sampled)
    return answers[0] | dict(choices=choices, usage=usage)


def chunks(answer: dict, usage: bool):
    """Yield a completion in the pieces of a stream: the message, the reason why it ends, and, if
    it is asked for, the usage."""
    base = {**answer, "object": "chat.completion.chunk", "usage": None}
    for choice in answer["choices"]:
        delta = dict(choice["message"])
        calls = [{"index": k} | call for k, call in enumerate(delta.pop("tool_calls", []))]
        delta |= {"tool_calls": calls} if calls else {}
        said = {"index": choice["index"], "delta": delta, "finish_reason": None}
        yield base | {"choices": [said]}
        yield base | {"choices": [said | {"delta": {}, "finish_reason": choice["finish_reason"]}]}
    if usage:
        yield base | {"choices": [], "usage": answer["usage"]}
