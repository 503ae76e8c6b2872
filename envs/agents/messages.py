"""Anthropic's Messages API: reads a request as one for a chat completion, and writes a Message.

    POST /v1/messages      POST /v1/messages/count_tokens

Thoughts are thinking blocks. Those of earlier turns go to the chat template, which keeps them or
leaves them out. What Anthropic hosts (web search, containers, ...) is refused with the reason.
"""

import json
from collections.abc import Iterator

from common.calls import Message
from envs.agents.completions import completion
from envs.agents.errors import Refused
from envs.agents.requests import Request, request_of

HOSTED = ["container", "context_management", "mcp_servers"]  # fields for what Anthropic runs
TRANSLATED = {"messages", "output_config", "stop_sequences", "system", "tool_choice", "tools"}
CHOICES = {"any": "required"}  # types of tool_choice whose name is another one in chat completions
STOP_REASONS = {"tool_calls": "tool_use", "length": "max_tokens"}


def parse(body: dict, sampling: str, conversations: dict) -> Request:
    """Check and parse the body of a request.

    conversations: not used, for each request has the whole conversation
    Refused, ValueError, ...: it cannot be answered
    """
    for name in HOSTED:
        if body.get(name):
            raise Refused(f"{name} cannot be served: it needs Anthropic's own servers")
    if body.get("n") not in (None, 1):
        raise Refused("n is no field of this request, which has one answer")
    chat = {name: value for name, value in body.items() if name not in TRANSLATED}
    said = [message for given in body["messages"] for message in _messages(given)]
    if said and said[-1]["role"] == "assistant":
        raise Refused("the last message must not be the assistant's: the policy begins its answers")
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    chat["messages"] = [*system, *said]
    chat["tools"] = [_tool(tool) for tool in body.get("tools") or []]
    choice = body.get("tool_choice") or {"type": "auto"}
    chat["tool_choice"] = _choice(choice)
    chat["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use")
    chat["stop"] = body.get("stop_sequences")
    chat["response_format"] = _format((body.get("output_config") or {}).get("format"))
    return request_of(chat, sampling)


def _messages(given: dict) -> Iterator[dict]:
    """Yield one message as chat messages: the results of tools are messages of their own."""
    blocks = given["content"]
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    if given["role"] == "assistant":
        yield _reply(blocks)
        return
    texts = []
    for block in blocks:
        if block.get("type") != "tool_result":
            texts.append(_part(block))
            continue
        if texts:
            yield {"role": given["role"], "content": texts}
        content, texts = block.get("content"), []
        if isinstance(content, list):
            content = [_part(part) for part in content]
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
    if texts:
        yield {"role": given["role"], "content": texts}


def _reply(blocks: list[dict]) -> dict:
    """Return a message of the assistant as a chat message."""
    reply, texts, calls = {"role": "assistant"}, [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking":
            reply["reasoning_content"] = reply.get("reasoning_content", "") + block["thinking"]
        elif kind == "tool_use":
            function = {"name": block["name"], "arguments": block["input"]}
            calls.append({"id": block["id"], "type": "function", "function": function})
        elif kind != "redacted_thinking":
            texts.append(_part(block))
    return reply | {"content": texts} | ({"tool_calls": calls} if calls else {})


def _part(block: dict) -> dict:
    """Return a block as a part of a chat message. Blocks that are no texts are refused later."""
    return {"type": "text", "text": block["text"]} if block.get("type") == "text" else block


def _tool(tool: dict) -> dict:
    if tool.get("type") not in (None, "custom"):
        raise Refused(f"the tool {tool['type']!r:.80} is Anthropic's own: only custom ones are run")
    function = {"name": tool["name"], "description": tool.get("description")}
    function["parameters"] = tool["input_schema"]
    known = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": known}


def _choice(choice: dict) -> str | dict:
    if choice["type"] == "tool":
        return {"type": "function", "function": {"name": choice["name"]}}
    return CHOICES.get(choice["type"], choice["type"])


def _format(given: dict | None) -> dict | None:
    return {"type": "json_schema", "json_schema": given} if given else None


def answer(request: Request, response: str, message: Message, turn: int, tokens: int) -> dict:
    """Return the Message that answers a request; the arguments are `completion`'s."""
    made = completion(request, response, message, turn, tokens)
    [choice] = made["choices"]
    stops = [stop for stop in request.stop if stop in response]
    reason, stop = STOP_REASONS.get(choice["finish_reason"], "end_turn"), None
    if stops and reason == "end_turn":
        reason, stop = "stop_sequence", min(stops, key=response.find)
    return {
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": made["model"],
        "content": list(_blocks(choice["message"])),
        "stop_reason": reason,
        "stop_sequence": stop,
        "usage": {"input_tokens": request.tokens, "output_tokens": tokens},
    }


def _blocks(reply: dict) -> Iterator[dict]:
    """Yield the content blocks of a chat message."""
    if thought := reply.get("reasoning_content"):
        yield {"type": "thinking", "thinking": thought, "signature": ""}
    calls = reply.get("tool_calls", [])
    if reply["content"] or not calls:
        yield {"type": "text", "text": reply["content"] or ""}
    for call in calls:
        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": name, "input": arguments}


def events(request: Request, given: dict) -> Iterator[bytes]:
    """Yield the server-sent events of a stream, with each block in one piece."""
    for event in _events(given):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _events(given: dict) -> Iterator[dict]:
    usage = given["usage"]
    begun = given | dict(content=[], stop_reason=None, stop_sequence=None)
    yield {"type": "message_start", "message": begun | {"usage": usage | {"output_tokens": 0}}}
    for k, block in enumerate(given["content"]):
        empty, deltas = _pieces(block)
        yield {"type": "content_block_start", "index": k, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": k, "delta": delta}
        yield {"type": "content_block_stop", "index": k}
    end = {"stop_reason": given["stop_reason"], "stop_sequence": given["stop_sequence"]}
    yield {"type": "message_delta", "delta": end, "usage": usage}
    yield {"type": "message_stop"}


def _pieces(block: dict) -> tuple[dict, list[dict]]:
    """Return a block as it begins in a stream, and what the stream adds to it."""
    if block["type"] == "tool_use":
        text = json.dumps(block["input"], ensure_ascii=False)
        return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": text}]
    if block["type"] == "text":
        return block | {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
    thought = {"type": "thinking_delta", "thinking": block["thinking"]}
    signature = {"type": "signature_delta", "signature": block["signature"]}
    return block | {"thinking": ""}, [thought, signature]
