"""Checks and parses the requests of agent programs for OpenAI's chat completions, into which the
other APIs are translated.

`envs.agents.options` checks the sampling options, and `envs.agents.completions` writes the answers.
"""

import json
from dataclasses import dataclass, field

from common.chat import Sampling
from envs.agents.errors import Refused
from envs.agents.options import UNSUPPORTED, foreign_sampling, option_value, sampling_of

NOT_RETURNED = ["logprobs", "top_logprobs", "prompt_logprobs", "echo", "stop_token_ids"]
REFUSED = dict.fromkeys(
    NOT_RETURNED, "is not given here: ids and log-probs stay with the trainer"
) | {
    "functions": "is the old name of tools; please use tools",
    "function_call": "is the old name of tool_choice; please use tool_choice",
    "web_search_options": "is for a search that OpenAI hosts; write a tool of your own",
    "audio": "is not possible: the policy writes text",
    "continue_final_message": "begins the answer for the policy, which must sample all of it",
    "truncate_prompt_tokens": "is not possible: the run decides what a prompt loses",
}


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
    for name, why in REFUSED.items():
        if body.get(name):
            raise Refused(f"{name} {why}")
    foreign = foreign_sampling(body) if sampling != "run" else {}
    if sampling == "refuse" and foreign:
        name, why = next(iter(foreign.items()))
        message = f"this endpoint samples from the policy that is trained: {name} {why}"
        how = "leaves it out" if name in UNSUPPORTED else "or untrained can serve it"
        raise Refused(f"{message}; a run with --endpoint-sampling run {how}")
    extra = {name: option_value(name, body) for name in foreign}
    template = dict(body.get("chat_template_kwargs") or {})
    if body.get("tools") and body.get("tool_choice") != "none":
        template["tools"] = body["tools"]
        if kinds := {tool.get("type", "function") for tool in body["tools"]} - {"function"}:
            raise Refused(f"tools must be of type function, not {', '.join(sorted(kinds))}")
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not all(isinstance(text, str) and text for text in stop):
        raise Refused("stop must be a text or a list of texts", code="invalid_request_error")
    request = Request(
        messages=[_message(message) for message in messages],
        template=template,
        stream=bool(body.get("stream")),
        stream_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        sampling=sampling_of(body, extra),
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
    # SDKs sort keys in their own ways, and some templates write a call with its keys as they come.
    # In our answers' order, the prompt goes on from the response as it was sampled.
    return _in_order(call | {"function": _in_order(function)})


def _in_order(keyed: dict) -> dict:
    """Return a call or its function with the keys in the order of our own answers."""
    known = [key for key in ("id", "type", "function", "name", "arguments") if key in keyed]
    return {key: keyed[key] for key in known} | keyed
