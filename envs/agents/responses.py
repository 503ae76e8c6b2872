"""Reads a request of OpenAI's Responses API as one for a chat completion.

    POST /v1/responses

The endpoint has no tools of its own. What OpenAI hosts (web search, stored prompts, ...) is refused
with the reason. `envs.agents.responses_answer` writes the answers.
"""

from dataclasses import dataclass

from envs.agents.errors import Refused
from envs.agents.requests import Request, request_of

HOSTED = {  # fields that ask for what OpenAI keeps or runs -> the reason why it is refused
    "background": "an answer is given to the connection that asked for it",
    "conversation": "conversations are not stored here; previous_response_id goes on with one",
    "context_management": "no message is dropped or compacted here",
    "prompt": "stored prompts are OpenAI's; please send instructions and input",
    "moderation": "there is no moderation here",
    "n": "a response is one answer",
}
TRANSLATED = {
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "text",
    "tool_choice",
    "tools",
}
TEXTS = {"input_text", "output_text", "reasoning_text", "summary_text", "text"}  # types of parts


@dataclass(kw_only=True)
class ResponsesRequest(Request):
    """A checked request, with what only the Responses API needs.

    body: the request as it came
    conversations: of the session: the id of a response -> the messages up to it and with it
    """

    body: dict
    conversations: dict[str, list[dict]]


def parse(body: dict, sampling: str, conversations: dict[str, list[dict]]) -> ResponsesRequest:
    """Check and parse the body of a request.

    conversations: as `ResponsesRequest.conversations`
    Refused, ValueError, ...: it cannot be answered
    """
    for name, why in HOSTED.items():
        if body.get(name):
            raise Refused(f"{name} cannot be served: {why}")
    if body.get("truncation") == "auto":
        raise Refused("truncation cannot be 'auto': no message is dropped here")
    before = body.get("previous_response_id")
    if before and before not in conversations:
        message = f"this episode has no response {before!r:.80}"
        raise Refused(message, code="previous_response_not_found")
    chat = {name: value for name, value in body.items() if name not in TRANSLATED}
    chat["messages"] = [*conversations.get(before, []), *_messages(body["input"])]
    if body.get("instructions"):
        chat["messages"].insert(0, {"role": "system", "content": body["instructions"]})
    chat["tools"] = [_tool(tool) for tool in body.get("tools") or []]
    chat["tool_choice"] = _choice(body.get("tool_choice"))
    chat["max_tokens"] = body.get("max_output_tokens")
    chat["response_format"] = _format((body.get("text") or {}).get("format"))
    chat["logprobs"] = "message.output_text.logprobs" in (body.get("include") or [])
    request = request_of(chat, sampling)
    return ResponsesRequest(**vars(request), body=body, conversations=conversations)


def _messages(given: str | list[dict]) -> list[dict]:
    """Return the items of an input as chat messages. The reasoning, the text and the calls of one
    response are one message of the assistant."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages, open_message = [], None  # the assistant's message to which a call may belong
    for item in given:
        kind = item.get("type") or "message"
        if kind == "function_call_output":
            result = {"role": "tool", "tool_call_id": item["call_id"]}
            messages.append(result | {"content": _parts(item["output"])})
            open_message = None
        elif kind == "message" and item.get("role") != "assistant":
            messages.append({"role": item.get("role"), "content": _parts(item.get("content"))})
            open_message = None
        elif kind in ("message", "reasoning", "function_call"):
            if open_message is None or not _add(open_message, kind, item):
                open_message = {"role": "assistant", "content": None}
                messages.append(open_message)
                _add(open_message, kind, item)
        else:
            raise Refused(f"an input item {kind!r:.80} cannot be read: only texts and functions")
    return messages


def _add(message: dict, kind: str, item: dict) -> bool:
    """Add an item to a message of the assistant; return whether it belongs to it."""
    begun = message["content"] is not None or "tool_calls" in message
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        call = {"id": item["call_id"], "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(call)
    elif begun or (kind == "reasoning" and "reasoning_content" in message):
        return False
    elif kind == "message":
        message["content"] = _parts(item.get("content"))
    else:
        parts = item.get("content") or item.get("summary") or []
        message["reasoning_content"] = "".join(part["text"] for part in parts)
    return True


def _parts(content: str | list[dict]) -> str | list[dict]:
    """Return a content as chat completions have it. Parts that are no texts are refused later."""
    if not isinstance(content, list):
        return content
    return [{"type": "text", "text": part["text"]} if part.get("type") in TEXTS else part
            for part in content]  # fmt: skip


def _tool(tool: dict) -> dict:
    if tool.get("type") != "function":
        raise Refused(f"the tool {tool.get('type')!r:.80} is OpenAI's own: only functions are run")
    names = ("name", "description", "parameters", "strict")
    return {
        "type": "function",
        "function": {name: tool[name] for name in names if tool.get(name) is not None},
    }


def _choice(choice: str | dict | None) -> str | dict | None:
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _format(given: dict | None) -> dict | None:
    if given and given.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": given}
    return given
