"""Writes the answers of OpenAI's Responses API: a Response, or the events of a stream."""

import json
from collections.abc import Iterator

from common.calls import Message
from envs.agents.completions import completion
from envs.agents.responses import ResponsesRequest

KEPT = 1024  # responses of a session that a later request can continue
ECHOED = [  # fields of a request that its answer repeats
    "instructions",
    "max_output_tokens",
    "metadata",
    "previous_response_id",
    "reasoning",
    "temperature",
    "text",
    "top_p",
    "user",
]


def answer(
    request: ResponsesRequest, response: str, message: Message, turn: int, tokens: int
) -> dict:
    """Return the Response to a request, and keep its conversation. Arguments: as `completion`"""
    made = completion(request, response, message, turn, tokens)
    [choice] = made["choices"]
    incomplete = choice["finish_reason"] == "length"
    status = "incomplete" if incomplete else "completed"
    given = {name: request.body.get(name) for name in ECHOED} | {
        "id": f"resp_{turn}",
        "object": "response",
        "created_at": 0,
        "model": made["model"],
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
        "error": None,
        "output": list(_items(choice["message"], turn, status)),
        "parallel_tool_calls": request.parallel,
        "tools": request.body.get("tools") or [],
        "tool_choice": request.body.get("tool_choice") or "auto",
        "usage": _usage(made["usage"]),
    }
    if request.body.get("store") is not False:
        said = request.messages[bool(request.body.get("instructions")) :]
        request.conversations[given["id"]] = [*said, choice["message"]]
        for old in list(request.conversations)[:-KEPT]:
            del request.conversations[old]
    return given


def _items(reply: dict, turn: int, status: str) -> Iterator[dict]:
    """Yield the output items of a chat message."""
    if thought := reply.get("reasoning_content"):
        content = [{"type": "reasoning_text", "text": thought}]
        yield {"id": f"rs_{turn}", "type": "reasoning", "summary": [], "content": content}
    calls = reply.get("tool_calls", [])
    if reply["content"] or not calls:
        part = {"type": "output_text", "text": reply["content"] or "", "annotations": []}
        item = {"id": f"msg_{turn}", "type": "message", "role": "assistant"}
        yield item | {"status": status, "content": [part]}
    for k, call in enumerate(calls):
        item = {"id": f"fc_{turn}_{k}", "type": "function_call", "call_id": call["id"]}
        yield item | call["function"] | {"status": "completed"}


def _usage(usage: dict) -> dict:
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }


def events(request: ResponsesRequest, given: dict) -> Iterator[bytes]:
    """Yield the server-sent events of a stream, with each text in one piece."""
    for number, event in enumerate(_events(given)):
        data = json.dumps(event | {"sequence_number": number})
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def _events(given: dict) -> Iterator[dict]:
    begun = given | dict(status="in_progress", output=[], usage=None, incomplete_details=None)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for k, item in enumerate(given["output"]):
        call = item["type"] == "function_call"
        empty = {"arguments": ""} if call else {"content": []}
        added = item | empty | {"status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": k, "item": added}
        place = {"output_index": k, "item_id": item["id"]}
        for event in _call_events(item) if call else _text_events(item["content"][0]):
            yield event | place
        yield {"type": "response.output_item.done", "output_index": k, "item": item}
    yield {"type": f"response.{given['status']}", "response": given}


def _call_events(item: dict) -> Iterator[dict]:
    kind, arguments = "response.function_call_arguments", item["arguments"]
    yield {"type": f"{kind}.delta", "delta": arguments}
    yield {"type": f"{kind}.done", "name": item["name"], "arguments": arguments}


def _text_events(part: dict) -> Iterator[dict]:
    kind, text, place = f"response.{part['type']}", part["text"], {"content_index": 0}
    no_logprobs = {"logprobs": []} if part["type"] == "output_text" else {}
    yield place | {"type": "response.content_part.added", "part": part | {"text": ""}}
    yield place | {"type": f"{kind}.delta", "delta": text} | no_logprobs
    yield place | {"type": f"{kind}.done", "text": text} | no_logprobs
    yield place | {"type": "response.content_part.done", "part": part}
