"""The dialogue of a logged turn: parts of the response, tool calls, results and user messages.

The HTML page and the terminal show the same parts and messages. Turns of environments without
messages have parts only.
"""

import json
from dataclasses import dataclass

from common.chat import END_OF_THOUGHT, THINK
from common.parts import part_starts
from ppo.engines.text import action_token

MAX_CALL_LINE = 76  # characters; longer calls take several lines


@dataclass(frozen=True)
class Part:
    """Part of a response. A token that straddles the end belongs to the next part."""

    # REASONING, SAYS and CALL; in environments without messages THINK, NOTES, ACTION and SUMMARY
    label: str
    text: str
    first: int  # index of its first token
    end: int  # index after its last token


@dataclass(frozen=True)
class LoggedMessage:
    kind: str  # call, result, error, or the role of the message: user, ...
    name: str  # of the tool, for calls and results
    text: str  # a call is written as Python
    failed: bool = False  # whether it reports an error


def parts_of(turn: dict) -> list[Part]:
    """Return the non-empty parts of a logged turn's response, in order."""
    text, tokens = turn["response"], turn["tokens"]
    thought, action = thought_end(turn), turn["action_at"]
    if turn.get("reply") is None:
        starts = part_starts(text, action)
        borders = zip(["THINK", *starts], [*starts.values(), len(text)], strict=True)
        ends = {"REASONING": thought} | dict(borders)
    elif calls_of(turn["reply"]) or not turn["valid"]:
        ends = {"REASONING": thought, "SAYS": action, "CALL": len(text)}
    else:  # a plain message: its action begins where the text does
        ends = {"REASONING": thought, "SAYS": len(text)}
    parts, begin, first = [], 0, 0
    for label, end in ends.items():
        last = action_token(tokens, text, end) if end or label != "REASONING" else 0
        if end > begin or last > first:
            parts.append(Part(label, text[begin:end], first, last))
        begin, first = end, last
    return parts


def thought_end(turn: dict) -> int:
    """Return where the reasoning between <think> and </think> ends, with trailing whitespace.

    <think> may be part of the prompt. Without </think> the reasoning ends where the action begins.
    """
    text, at = turn["response"], turn["action_at"]
    end = text.rfind(END_OF_THOUGHT, 0, at)
    if end >= 0:
        end += len(END_OF_THOUGHT)
        return at - len(text[end:at].lstrip())
    opened = THINK in text[:at] or turn["prompt"].rstrip().endswith(THINK)
    return at if opened else 0


def messages_of(turn: dict) -> list[LoggedMessage]:
    """Return a logged turn's calls, each with its result, and the other messages after it."""
    calls = calls_of(turn.get("reply"))
    followed = turn.get("followed") or ()
    results = [message for message in followed if message["role"] == "tool"]
    paired = len(results) == len(calls)
    found = []
    for k, call in enumerate(calls):
        found.append(LoggedMessage("call", call["name"], call_text(call)))
        if paired:
            found.append(_result(results[k], call["name"]))
    for message in followed:
        if message["role"] != "tool":
            found.append(_other_message(message, unreadable=not (turn["valid"] or calls)))
        elif not paired:
            found.append(_result(message, "tool"))
    return found


def calls_of(reply: dict | None) -> list[dict]:
    """Return the calls {"name", "arguments"} of a chat message."""
    return [call["function"] for call in (reply or {}).get("tool_calls") or ()]


def call_text(call: dict) -> str:
    """Return a call {"name", "arguments"} as Python code; long calls take several lines."""
    arguments = call.get("arguments") or {}
    if not isinstance(arguments, dict):
        return f"{call['name']}({arguments})"
    texts = [f"{name}={_argument_text(value)}" for name, value in arguments.items()]
    line = f"{call['name']}({', '.join(texts)})"
    if len(line) <= MAX_CALL_LINE and "\n" not in line:
        return line
    return f"{call['name']}(\n" + "".join(f"  {text},\n" for text in texts) + ")"


def _argument_text(value) -> str:
    """Return JSON, except for multi-line text such as code, which is quoted unchanged."""
    if isinstance(value, str) and "\n" in value:
        return f'"""\n{value}\n"""'
    return json.dumps(value, ensure_ascii=False)


def _result(message: dict, tool: str) -> LoggedMessage:
    text = _content(message)
    return LoggedMessage("result", message.get("name") or tool, text, text.startswith("Error"))


def _other_message(message: dict, unreadable: bool) -> LoggedMessage:
    """unreadable: the response could not be parsed, so this message may be an error about it"""
    text = _content(message)
    failed = unreadable and text.startswith("Error")
    return LoggedMessage("error" if failed else message["role"], "", text, failed)


def _content(message: dict) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
