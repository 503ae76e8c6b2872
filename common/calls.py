"""Finds the tool calls in a model's response. Pure functions of text.

An environment has no tokenizer, so the format is recognised by the text itself:

    Hermes, Qwen2.5, Qwen3      <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>
    Qwen3.5, Qwen3-Coder        <tool_call><function=add><parameter=a>1</parameter></function> ...
    Llama 3.1, 3.2              {"name": "add", "parameters": {"a": 1}}, maybe after <|python_tag|>
    DeepSeek                    <｜tool▁call▁begin｜>function<｜tool▁sep｜>add ```json {"a": 1} ```

Only what follows the last </think> counts. Values in XML are texts, which `envs.tools.schemas`
converts to the types of the tool's schema.
"""

import json
import re
from dataclasses import dataclass, replace

from common.chat import END_OF_THOUGHT, THINK, after_thought

END_OF_CALL = "</tool_call>"
DEEPSEEK = "<｜tool▁call▁begin｜>"
MARKER = re.compile(
    rf"<tool_call>\s*|(?=<function=)|(?:<｜tool▁calls▁begin｜>\s*)?{DEEPSEEK}|<\|python_tag\|>\s*"
)
HEAD = re.compile(r"function<｜tool▁sep｜>(.+)\n```json\n|(.+?)<｜tool▁sep｜>")  # V3 and R1; V3.1
BARE = re.compile(r'\{\s*"(?:name|type)"\s*:[^{]*"(?:parameters|arguments)"\s*:')  # Llama
FUNCTION = re.compile(r"<function=([^>\n]+)>")
PARAMETER = re.compile(
    r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>(?=\s*<parameter=|\s*</function>)", re.DOTALL
)
BLANKS, BETWEEN = re.compile(r"\s*"), re.compile(r"[\s;]*")
JSON = json.JSONDecoder()
DEEPEST = 64  # levels in a call; a copy or a template of a deeper one may overflow the stack


@dataclass(frozen=True)
class Message:
    """A parsed response. at: the index of its first call, or of the answer without a call"""

    content: str  # the text before the first call, with the thought
    answer: str  # the same without the thought
    at: int
    calls: tuple[dict, ...] = ()  # {"name", "arguments"}, and "raw": True if all values are texts
    error: str = ""  # why it cannot be read, as a message to the model; then `calls` is empty


class BadCall(ValueError):
    """A call cannot be read. The text is the message to the model."""


def read(response: str) -> Message:
    """Split a response into the thought, the text for the user, and the calls."""
    start = after_thought(response)
    if THINK in response[start:] or (start and END_OF_THOUGHT not in response):
        error = f"the thought was not closed with {END_OF_THOUGHT}"
        return Message(response, "", len(response), error=error)
    first = MARKER.search(response, start) or _bare(response, start)
    if not first:
        answer = response[start:].strip()
        at = len(response) - len(response[start:].lstrip())
        error = "" if answer else "the message is empty"
        if END_OF_CALL in answer:  # a </think> in an argument hides the beginning of the call
            error = f"{END_OF_CALL} stands there without the beginning of a call"
        return Message(response.strip(), answer, at, error=error)
    at = first.start()
    message = Message(response[:at].strip(), response[start:at].strip(), at)
    try:
        return replace(message, calls=tuple(_calls(response, first)))
    except BadCall as error:
        return replace(message, content=response.strip(), error=str(error))


def _bare(response: str, start: int) -> re.Match | None:
    """Match a call without a marker: Llama's whole message is JSON."""
    return BARE.match(response, len(response) - len(response[start:].lstrip()))


def _calls(response: str, marker: re.Match | None):
    """Yield the calls, beginning at the first marker."""
    while marker:
        if response.startswith("<function=", marker.end()):
            call, end = _xml(response, marker.end())
        elif marker[0].endswith(DEEPSEEK):
            call, end = _deepseek(response, marker.end())
        else:
            begin = marker.start() if marker.re is BARE else marker.end()
            call, end = _json(response, begin)
        yield call
        # A value may contain the text of a marker, so the search continues after the call.
        if marker.re is BARE:
            marker = BARE.match(response, BETWEEN.match(response, end).end())
        else:
            marker = MARKER.search(response, end)


def _json(response: str, begin: int) -> tuple[dict, int]:
    call, end = _decode(response, begin)
    name = call.get("name")
    arguments = call.get("arguments", call.get("parameters"))
    if not isinstance(name, str) or arguments is None:
        raise BadCall('a call must be a JSON object with "name" and "arguments"')
    return _call(name, arguments), end


def _deepseek(response: str, begin: int) -> tuple[dict, int]:
    head = HEAD.match(response, begin)
    if not head:
        raise BadCall("the call does not name a tool")
    arguments, end = _decode(response, head.end())
    return _call(head[1] or head[2], arguments), end


def _xml(response: str, begin: int) -> tuple[dict, int]:
    head = FUNCTION.match(response, begin)
    end = response.find("</function>", begin)
    if not head or end < 0:
        raise BadCall("the call does not have the form <function=name> ... </function>")
    arguments, at = {}, head.end()
    while parameter := PARAMETER.match(response, at):
        if parameter[1].strip() in arguments:
            raise BadCall(f"the call gives {parameter[1].strip()!r} twice")
        arguments[parameter[1].strip()], at = parameter[2], parameter.end()
    rest = re.compile(r"\s*</function>").match(response, at)
    if not rest:
        raise BadCall("the parameters do not have the form <parameter=name> value </parameter>")
    return _call(head[1], arguments) | {"raw": True}, rest.end()


def _call(name: str, arguments) -> dict:
    if isinstance(arguments, str):  # JSON in a JSON text, as OpenAI's interface writes it
        arguments, _ = _decode(arguments, 0)
    if not isinstance(arguments, dict):
        raise BadCall("the arguments of a call must be a JSON object")
    return {"name": name.strip(), "arguments": arguments}


def _decode(text: str, begin: int) -> tuple[dict, int]:
    """Return the JSON object that begins at `begin`, and the index of its end."""
    try:
        value, end = JSON.raw_decode(text, BLANKS.match(text, begin).end())
    except (ValueError, RecursionError) as error:
        raise BadCall(f"the call is not valid JSON ({str(error).partition(':')[0]})") from error
    if not isinstance(value, dict):
        raise BadCall("the call is not a JSON object")
    level = [value]
    for _ in range(DEEPEST):
        level = [part for whole in level for part in _parts(whole)]
    if level:
        raise BadCall(f"the call's JSON is nested more than {DEEPEST} levels deep")
    return value, end


def _parts(value) -> list:
    """Return the values in a JSON object or list, and none in anything else."""
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
