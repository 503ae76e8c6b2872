"""What an agent's program asks of the endpoint, and what it gets: OpenAI's chat completions.

A request is checked and taken apart here, and a response of the policy is put into the form that
SDKs read. What is not the policy's distribution at some temperature cannot be trained on, so it is
refused, unless the run says otherwise (`--endpoint-sampling`).
"""

import json
from dataclasses import dataclass, field

from memory.calls import Message, read
from memory.messages import END_OF_THOUGHT, THINK

POLICY = "policy"  # the name of the model that is trained
FORCED = "forces a tool, and so changes what the policy may say"


class Refused(ValueError):
    """A request that cannot be answered. code: as HTTP and OpenAI's SDKs know it"""

    def __init__(self, said: str, status: int = 400, code: str = "unsupported_value"):
        super().__init__(said)
        self.status, self.code = status, code


@dataclass
class Request:
    """A checked request. messages: as chat templates want them; template: their other arguments"""

    messages: list[dict]
    template: dict
    stream: bool = False
    stream_usage: bool = False  # whether a stream ends with a piece that has the usage alone
    sampling: dict = field(default_factory=dict)  # temperature, max_tokens
    stop: list[str] = field(default_factory=list)

    @property
    def tools(self) -> bool:
        return "tools" in self.template


def request_of(body: dict, strict: bool = True) -> Request:
    """Check a request's body. strict: refuse what is not the policy's distribution, instead of
    leaving it out. Refused: it cannot be answered"""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a list that is not empty", code="invalid_request_error")
    if strict:
        for name, why in _foreign_sampling(body):
            said = f"{name} {why}; the run can serve it with --endpoint-sampling run"
            raise Refused(f"this endpoint samples from the policy that is trained: {said}")
    template = dict(body.get("chat_template_kwargs") or {})
    if body.get("tools") and body.get("tool_choice") != "none":
        template["tools"] = body["tools"]
    stop, sampling = body.get("stop") or [], {}
    if body.get("temperature") not in (None, 0):
        sampling["temperature"] = float(body["temperature"])
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit:
        sampling["max_tokens"] = int(limit)
    stops = [stop] if isinstance(stop, str) else list(stop)
    plain = [_message(message) for message in messages]
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return Request(plain, template, bool(body.get("stream")), usage, sampling, stops)


def _foreign_sampling(body: dict):
    """Yield what a request asks for that no temperature of the policy gives, and why not."""
    if body.get("temperature") == 0:
        yield "temperature 0", "is greedy"
    if body.get("top_p") not in (None, 1):
        yield "top_p", "cuts the distribution off"
    if body.get("top_k") not in (None, -1, 0):
        yield "top_k", "cuts the distribution off"
    for name in ("logit_bias", "presence_penalty", "frequency_penalty"):
        if body.get(name):
            yield name, "changes the distribution"
    if (body.get("response_format") or {}).get("type", "text") != "text":
        yield "response_format", "allows only some tokens"
    if body.get("tool_choice") not in (None, "auto", "none"):
        yield "tool_choice", FORCED
    if body.get("n") not in (None, 1):
        yield "n", "asks for several answers, and a turn has one"


def _message(message: dict) -> dict:
    """Write a message as chat templates want it: texts, and arguments of calls as mappings."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refused("each message needs a role", code="invalid_request_error")
    content = message.get("content")
    if isinstance(content, list):
        kinds = {part.get("type") for part in content}
        if kinds - {"text"}:
            raise Refused(f"only text can be read, not {', '.join(sorted(kinds - {'text'}))}")
        content = "".join(part["text"] for part in content)
    plain = {key: value for key, value in message.items() if value is not None}
    plain |= {"content": content or ""}
    if plain["role"] == "developer":
        plain["role"] = "system"
    calls = plain.pop("tool_calls", None)
    return plain | ({"tool_calls": [_call(call) for call in calls]} if calls else {})


def _call(call: dict) -> dict:
    function = dict(call.get("function") or {})
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError:
            function["arguments"] = {"arguments": function["arguments"]}
    return call | {"function": function}


def heard(request: Request, text: str) -> Message:
    """Take a response apart as the program will see it."""
    places = [text.find(stop) for stop in request.stop if stop in text]
    message = read(text[: min(places, default=len(text))])
    if request.tools or not message.calls:
        return message
    # Without tools in the request, what looks like a call is text.
    return Message(text, text[message.at :], message.at)


def completion(request: Request, message: Message, turn: int, truncated: bool, usage: dict) -> dict:
    """Return the answer to a request, as POST /v1/chat/completions gives it.

    turn: number of the turn in the episode; ids of calls come from it, so replays have the same
    """
    calls = [
        {
            "id": f"call{turn % 1000:03d}{k % 100:02d}",
            "type": "function",
            "function": {
                "name": call["name"],
                "arguments": json.dumps(call["arguments"], ensure_ascii=False),
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
    reason = "length" if truncated else "tool_calls" if calls else "stop"
    return {
        "id": f"turn-{turn}",
        "object": "chat.completion",
        "created": 0,
        "model": POLICY,
        "choices": [{"index": 0, "message": said, "finish_reason": reason}],
        "usage": usage,
    }


def chunks(answer: dict, usage: bool):
    """Yield a completion in the pieces of a stream: the message, the reason why it ends, and, if
    it is asked for, the usage."""
    choice = answer["choices"][0]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": k} | call for k, call in enumerate(delta["tool_calls"])]
    base = {**answer, "object": "chat.completion.chunk", "usage": None}
    yield base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    ended = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield base | {"choices": [ended]}
    if usage:
        yield base | {"choices": [], "usage": answer["usage"]}
