"""What an agent's program asks of the endpoint, and what it gets: OpenAI's chat completions.

A request is checked and taken apart here, and a response of the policy is put into the form that
SDKs read. What is not the policy's distribution at some temperature cannot be trained on, so it is
refused, unless the run says otherwise (`--endpoint-sampling`): `run` leaves it out, and `untrained`
hands it to the engine, whose answer is then no sample.
"""

import json
from dataclasses import dataclass, field, replace
from numbers import Real

from envs.tool_schemas import converted
from memory.calls import Message, read
from memory.messages import END_OF_THOUGHT, THINK, after_thought

POLICY = "policy"  # the name of the model that is trained
# What a request may ask for that no temperature of the policy gives: the values that ask for
# nothing (also null and what is empty), and why the others are refused.
FOREIGN = {
    "top_p": ((1,), "cuts the distribution off"),
    "top_k": ((-1, 0), "cuts the distribution off"),
    "min_p": ((0,), "cuts the distribution off"),
    "logit_bias": ((), "changes the distribution"),
    "presence_penalty": ((0,), "changes the distribution"),
    "frequency_penalty": ((0,), "changes the distribution"),
    "repetition_penalty": ((1,), "changes the distribution"),
    "response_format": (({"type": "text"},), "allows only some tokens"),
    "tool_choice": (("auto", "none"), "forces a tool, and so changes what the policy may say"),
    "n": ((1,), "asks for several answers, and a turn has one"),
}
TEMPERATURES = (0.001, 1000)
RANGES = {  # of numbers among FOREIGN
    "temperature": (0, 0), "top_p": (1e-6, 1), "top_k": (1, 10**6), "min_p": (0, 1), "n": (1, 128),
    "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2), "repetition_penalty": (0.01, 10),
}  # fmt: skip
WHOLE = {"top_k", "n"}


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
    sampling: dict = field(default_factory=dict)  # temperature, max_tokens, untrained
    stop: list[str] = field(default_factory=list)
    tokens: int = 0  # of the prompt; 0: nobody has counted them

    @property
    def untrained(self) -> dict:
        """What it asks for that is not the policy's distribution, if the engine is to give it."""
        return self.sampling.get("untrained", {})

    @property
    def tools(self) -> dict[str, dict]:
        """The schemas of the tools that the policy may call, by name."""
        return {tool["function"]["name"]: tool for tool in self.template.get("tools", ())}


def request_of(body: dict, sampling: str = "refuse") -> Request:
    """Check a request's body. sampling: "refuse" what is not the policy's distribution, leave it
    out ("run"), or keep it ("untrained"). Refused, ValueError, ...: it cannot be answered"""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a list that is not empty", code="invalid_request_error")
    if body.get("functions"):
        raise Refused("functions is the old name of tools; please use tools")
    foreign = _foreign_sampling(body) if sampling != "run" else {}
    if sampling == "refuse" and foreign:
        name, why = next(iter(foreign.items()))
        said = f"this endpoint samples from the policy that is trained: {name} {why}"
        raise Refused(f"{said}; the run can serve it with --endpoint-sampling run or untrained")
    own = _sampling(body)
    if foreign:
        own["untrained"] = {name: _wish(name, body) for name in foreign}
    template = dict(body.get("chat_template_kwargs") or {})
    if body.get("tools") and body.get("tool_choice") != "none":
        template["tools"] = body["tools"]
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not all(isinstance(text, str) and text for text in stop):
        raise Refused("stop must be a text or a list of texts", code="invalid_request_error")
    request = Request(
        messages=[_message(message) for message in messages],
        template=template,
        stream=bool(body.get("stream")),
        stream_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        sampling=own,
        stop=stop,
    )
    if not all(isinstance(name, str) for name in request.tools):  # KeyError: it has none
        raise Refused("each tool needs a name", code="invalid_request_error")
    return request


def _foreign_sampling(body: dict) -> dict[str, str]:
    """Return what a request asks for that no temperature of the policy gives, and why not."""
    asked = {"temperature": "0 is greedy"} if body.get("temperature") == 0 else {}
    return asked | {
        name: why
        for name, (neutral, why) in FOREIGN.items()
        if body.get(name) not in (None, [], {}, *neutral)
    }


def _wish(name: str, body: dict):
    """Return what a request asks for under a name of FOREIGN, as engines take it: a number, the
    logits' additions by token, or a JSON schema. Refused: nothing can give this"""
    value, wrong = body[name], Refused(f"{name} cannot be {body[name]!r:.80}")
    if name in RANGES:
        low, high = RANGES[name]
        kind = int if name in WHOLE else Real
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise wrong
        return value
    if name == "logit_bias":
        if not all(isinstance(added, Real) and -100 <= added <= 100 for added in value.values()):
            raise wrong
        return {int(token): float(added) for token, added in value.items()}
    if name == "response_format":
        schemas = {"json_object": {"type": "object"}}
        schemas["json_schema"] = (value.get("json_schema") or {}).get("schema")
        if not isinstance(schemas.get(value.get("type")), dict):
            raise wrong
        return schemas[value["type"]]
    return _forced_call(body["tool_choice"], body.get("tools") or [], wrong)


def _forced_call(choice: str | dict, tools: list[dict], wrong: Refused) -> dict:
    """Return the JSON schema of the calls that a tool_choice allows."""
    named = choice["function"]["name"] if isinstance(choice, dict) else None
    if not isinstance(choice, dict) and choice != "required":
        raise wrong
    functions = [tool["function"] for tool in tools]
    allowed = [function for function in functions if named in (None, function["name"])]
    if not allowed:
        raise wrong
    calls = [
        {"name": {"const": function["name"]},
         "arguments": function.get("parameters") or {"type": "object"}}
        for function in allowed
    ]  # fmt: skip
    call = dict(type="object", required=["name", "arguments"], additionalProperties=False)
    return {"anyOf": [call | {"properties": properties} for properties in calls]}


def _sampling(body: dict) -> dict:
    """Return what the prompt's response has of its own: temperature, max_tokens."""
    sampling, temperature = {}, body.get("temperature")
    if temperature:  # 0 was refused, or is no sample, or the run's own is taken
        low, high = TEMPERATURES
        if not low <= float(temperature) <= high:
            raise Refused(f"temperature must be from {low} to {high}, got {temperature}")
        sampling["temperature"] = float(temperature)
    for name in ("max_completion_tokens", "max_tokens"):
        limit = body.get(name)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise Refused(f"{name} must be a whole number above 0, got {limit!r:.80}")
        if limit is not None:
            sampling.setdefault("max_tokens", limit)
    return sampling


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


def heard(request: Request, response: str) -> Message:
    """Take a response apart as the program will see it."""
    text = _until_stop(request, response)
    message = read(text)
    if not request.tools and message.at < len(text) and (message.calls or message.error):
        start = after_thought(text)  # without tools, what looks like a call is words
        return Message(text.strip(), text[start:].strip(), start)
    calls = [_typed(call, request.tools.get(call["name"])) for call in message.calls]
    return replace(message, calls=tuple(calls))


def _until_stop(request: Request, response: str) -> str:
    places = [response.find(stop) for stop in request.stop if stop in response]
    return str(response)[: min(places, default=None)]


def _typed(call: dict, tool: dict | None) -> dict:
    """Turn the values of a call into what the tool's schema says, where all of them are texts."""
    schema = (tool or {}).get("function", {}).get("parameters") or {}
    return call | {"arguments": converted(call, schema.get("properties", {}))}


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
