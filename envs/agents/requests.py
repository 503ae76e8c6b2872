"""Checks and parses the requests of agent programs for OpenAI's chat completions.

`envs.agents.completions` writes the answers. A response can be trained on only if it is sampled
from the policy's distribution at some temperature. By default other sampling options are refused.
`--endpoint-sampling run` ignores them; `untrained` passes them on to the engine, and the response
is not trained on.
"""

import json
from dataclasses import dataclass, field
from numbers import Real

from common.chat import Sampling

# Options that change the policy's distribution: neutral values (null and empty ones are neutral,
# too), and the reason why other values are refused.
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
    "best_of": ((1,), "keeps the likeliest of several answers"),
    "logits_processors": ((), "changes the distribution"),
}
# Options of vLLM's server that also restrict the tokens
RESTRICTIONS = [
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "allowed_token_ids",
    "bad_words",
    "ignore_eos",
    "min_tokens",
]
FOREIGN.update(dict.fromkeys(RESTRICTIONS, ((0,), "allows only some tokens")))
# Options that the engine does not get, not even for an untrained answer
UNSUPPORTED = [*RESTRICTIONS, "best_of", "logits_processors"]
NOT_RETURNED = ["logprobs", "top_logprobs", "prompt_logprobs", "echo", "stop_token_ids"]
TEMPERATURES = (0.001, 1000)
RANGES = {  # of the numbers among the options of FOREIGN
    "temperature": (0, 0),
    "top_p": (1e-6, 1),
    "top_k": (1, 10**6),
    "min_p": (0, 1),
    "n": (1, 128),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "repetition_penalty": (0.01, 10),
}
INTEGERS = {"top_k", "n"}


class Refused(ValueError):
    """A request that cannot be answered. status, code: those of OpenAI's API"""

    def __init__(self, message: str, status: int = 400, code: str = "unsupported_value"):
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Request:
    """A checked request.

    messages: in the form that chat templates take
    template: the other arguments of the chat template
    """

    messages: list[dict]
    template: dict
    stream: bool = False
    stream_usage: bool = False  # whether a stream ends with a chunk for the usage
    sampling: Sampling = Sampling()  # with `extra` options, the response is not trained on
    stop: list[str] = field(default_factory=list)
    parallel: bool = True  # whether the program takes all calls of a response, or only the first
    tokens: int = 0  # of the prompt; 0: not counted

    @property
    def tools(self) -> dict[str, dict]:
        """The schemas of the tools that the policy may call, by name."""
        return {tool["function"]["name"]: tool for tool in self.template.get("tools", ())}


def request_of(body: dict, sampling: str = "refuse") -> Request:
    """Check and parse the body of a request.

    sampling: "refuse" options that change the policy's distribution, ignore them ("run"), or keep
        them ("untrained")
    Refused, ValueError, ...: it cannot be answered
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("messages must be a list that is not empty", code="invalid_request_error")
    if body.get("functions"):
        raise Refused("functions is the old name of tools; please use tools")
    for name in NOT_RETURNED:
        if body.get(name):
            raise Refused(f"{name} is not given here: ids and log-probs stay with the trainer")
    foreign = _foreign_sampling(body) if sampling != "run" else {}
    if sampling == "refuse" and foreign:
        name, why = next(iter(foreign.items()))
        message = f"this endpoint samples from the policy that is trained: {name} {why}"
        how = "leaves it out" if name in UNSUPPORTED else "or untrained can serve it"
        raise Refused(f"{message}; a run with --endpoint-sampling run {how}")
    extra = {name: _option(name, body) for name in foreign}
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
        sampling=_sampling(body, extra),
        stop=stop,
        parallel=body.get("parallel_tool_calls") is not False,
    )
    for name, tool in request.tools.items():  # KeyError: a tool has no name
        schema = tool["function"].get("parameters") or {}
        known = schema.get("properties") or {}  # AttributeError: the schema is not an object
        if not isinstance(name, str) or not isinstance(known, dict):
            message = "each tool needs a name, and its parameters must be a JSON schema"
            raise Refused(message, code="invalid_request_error")
    return request


def _foreign_sampling(body: dict) -> dict[str, str]:
    """Return the options that change the policy's distribution: name -> the reason to refuse it."""
    found = {"temperature": "0 is greedy"} if body.get("temperature") == 0 else {}
    for name, (neutral, why) in FOREIGN.items():
        if body.get(name) not in (None, [], {}, *neutral):
            found[name] = why
    return found


def _option(name: str, body: dict):
    """Return the value of an option of FOREIGN, as engines take it: a number, a bias for each token
    id, or a JSON schema. Refused: the value is invalid, or no engine supports the option"""
    value, wrong = body[name], Refused(f"{name} cannot be {body[name]!r:.80}")
    if name in RANGES:
        low, high = RANGES[name]
        kind = int if name in INTEGERS else Real
        if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
            raise wrong
        return value
    if name in UNSUPPORTED:
        raise wrong
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
    return {"anyOf": [_call_schema(function) for function in allowed]}


def _call_schema(function: dict) -> dict:
    return {
        "type": "object",
        "required": ["name", "arguments"],
        "additionalProperties": False,
        "properties": {
            "name": {"const": function["name"]},
            "arguments": function.get("parameters") or {"type": "object"},
        },
    }


def _sampling(body: dict, extra: dict) -> Sampling:
    """Check temperature and max_tokens. extra: the request's other options"""
    temperature, limits = body.get("temperature"), []
    if temperature:  # 0 is refused, in `extra`, or ignored
        low, high = TEMPERATURES
        if not low <= float(temperature) <= high:
            raise Refused(f"temperature must be from {low} to {high}, got {temperature}")
    for name in ("max_completion_tokens", "max_tokens"):
        limit = body.get(name)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise Refused(f"{name} must be a whole number above 0, got {limit!r:.80}")
        if limit is not None:
            limits.append(limit)
    temperature = float(temperature) if temperature else None
    return Sampling(temperature, limits[0] if limits else None, extra)


def _message(message: dict) -> dict:
    """Convert a message for chat templates: contents are texts, arguments of calls are dicts."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refused("each message needs a role", code="invalid_request_error")
    content = message.get("content")
    if isinstance(content, list):
        kinds = {part.get("type") for part in content}
        if kinds - {"text"}:
            raise Refused(f"only text can be read, not {', '.join(sorted(kinds - {'text'}))}")
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str | None):
        error = "the content of a message must be a text, a list of parts or null"
        raise Refused(error, code="invalid_request_error")
    converted = {key: value for key, value in message.items() if value is not None}
    converted["content"] = content or ""
    if converted["role"] == "developer":
        converted["role"] = "system"
    if calls := converted.pop("tool_calls", None):
        converted["tool_calls"] = [_call(call) for call in calls]
    return converted


def _call(call: dict) -> dict:
    function = dict(call.get("function") or {})
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError:
            function["arguments"] = {"arguments": function["arguments"]}
    return call | {"function": function}
