"""Turns a response of the policy into the answer to a request: OpenAI's chat completion."""

import json
from dataclasses import replace

from common.calls import Message, read
from common.chat import END_OF_THOUGHT, THINK, after_thought
from envs.agents.requests import Request
from envs.tools.schemas import converted

POLICY = "policy"  # the name under which programs ask for the trained model


def parse_response(request: Request, response: str) -> Message:
    """Split a response into text and calls, as the program will get them."""
    text = _until_stop(request, response)
    message = read(text)
    if not request.tools and message.at < len(text) and (message.calls or message.error):
        start = after_thought(text)  # without tools, a call is just text
        return Message(text.strip(), text[start:].strip(), start)
    calls = [_typed(call, request.tools.get(call["name"])) for call in message.calls]
    return replace(message, calls=tuple(calls if request.parallel else calls[:1]))


def _until_stop(request: Request, response: str) -> str:
    ends = [response.find(stop) for stop in request.stop if stop in response]
    return str(response)[: min(ends, default=None)]


def _typed(call: dict, tool: dict | None) -> dict:
    """Convert the values of a call to the types of the tool's schema, if all of them are texts."""
    schema = (tool or {}).get("function", {}).get("parameters") or {}
    return call | {"arguments": converted(call, schema.get("properties") or {})}


def completion(request: Request, response: str, message: Message, turn: int, tokens: int) -> dict:
    """Return the answer to a request, in the format of POST /v1/chat/completions.

    response: its text; the attribute `truncated`, if it has one, is True at the response limit
    message: from `parse_response`
    turn: number of the turn in the episode; it decides the ids of calls, which replays repeat
    tokens: number of tokens of the response, for the usage
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
    reply = {"role": "assistant", "content": message.answer or ("" if not calls else None)}
    thought, end_of_thought, _ = message.content.rpartition(END_OF_THOUGHT)
    if message.error:  # the whole text, as from servers without a parser
        reply["content"] = message.content
    elif end_of_thought:
        reply["reasoning_content"] = thought.replace(THINK, "").strip()
    if calls:
        reply["tool_calls"] = calls
    whole = _until_stop(request, response) != response or not getattr(response, "truncated", False)
    reason = "tool_calls" if whole and calls else "stop" if whole else "length"
    usage = dict(prompt_tokens=request.tokens, completion_tokens=tokens)
    return {
        "id": f"turn-{turn}",
        "object": "chat.completion",
        "created": 0,
        "model": POLICY,
        "choices": [{"index": 0, "message": reply, "finish_reason": reason}],
        "usage": usage | {"total_tokens": request.tokens + tokens},
    }


def _valid(text: str) -> str:
    """Replace lone surrogates, which JSON in a response may contain but SDKs cannot encode."""
    return text.encode("utf-8", "replace").decode()


def with_all_choices(answers: list[dict]) -> dict:
    """Merge the answers to one request (n > 1) into one completion."""
    choices = [answer["choices"][0] | {"index": k} for k, answer in enumerate(answers)]
    usage = answers[0]["usage"]
    sampled = sum(answer["usage"]["completion_tokens"] for answer in answers)
    usage = usage | dict(completion_tokens=sampled, total_tokens=usage["prompt_tokens"] + sampled)
    return answers[0] | dict(choices=choices, usage=usage)


def chunks(answer: dict, usage: bool):
    """Yield a completion as the chunks of a stream: the message, the finish reason, and, if the
    program wants it, the usage."""
    base = {**answer, "object": "chat.completion.chunk", "usage": None}
    for choice in answer["choices"]:
        delta = dict(choice["message"])
        calls = [{"index": k} | call for k, call in enumerate(delta.pop("tool_calls", []))]
        if calls:
            delta["tool_calls"] = calls
        piece = {"index": choice["index"], "delta": delta, "finish_reason": None}
        yield base | {"choices": [piece]}
        yield base | {"choices": [piece | {"delta": {}, "finish_reason": choice["finish_reason"]}]}
    if usage:
        yield base | {"choices": [], "usage": answer["usage"]}


def events(request: Request, answer: dict):
    """Yield the server-sent events of a stream."""
    for piece in chunks(answer, request.stream_usage):
        yield b"data: " + json.dumps(piece).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"
