"""What was said in a turn: the parts of the response, and the messages that were exchanged.

The page and the terminal show the same parts and messages. Turns of environments without messages,
and turns logged before there were any, have parts alone.
"""

import json
from dataclasses import dataclass

from ppo.engines.contract import action_token

THINK, END_OF_THOUGHT = "<think>", "</think>"
LINE = 76  # characters of a call that is written in one line


@dataclass(frozen=True)
class Part:
    """Part of a response. A token across its end belongs to the next part."""

    label: str  # REASONING, then SAYS and CALL; without messages THINK and ACTION
    text: str
    first: int  # index of its first token
    end: int  # index after its last token


@dataclass(frozen=True)
class Message:
    kind: str  # call, result, error, or the role of who spoke: user, ...
    name: str  # of the tool, in a call and a result
    text: str  # of a call: how it would be written in Python
    failed: bool = False  # whether it says that something went wrong


def parts_of(turn: dict) -> list[Part]:
    """Return the parts of a logged turn's response that are not empty, in order."""
    text, tokens = turn["response"], turn["tokens"]
    thought, action = thought_end(turn), turn["action_at"]
    if turn.get("reply") is None:
        ends = {"REASONING": thought, "THINK": action, "ACTION": len(text)}
    elif calls_of(turn["reply"]) or not turn["valid"]:
        ends = {"REASONING": thought, "SAYS": action, "CALL": len(text)}
    else:  # here the action begins where the words do
        ends = {"REASONING": thought, "SAYS": len(text)}
    parts, begin, first = [], 0, 0
    for label, end in ends.items():
        place = action_token(tokens, text, end) if end or label != "REASONING" else 0
        if end > begin or place > first:
            parts.append(Part(label, text[begin:end], first, place))
        begin, first = end, place
    return parts


def thought_end(turn: dict) -> int:
    """Return where the reasoning between <think> and </think> ends, blanks after it included.

    The prompt may have opened it. One that is never closed lasts until the action begins.
    """
    text, at = turn["response"], turn["action_at"]
    end = text.rfind(END_OF_THOUGHT, 0, at)
    if end >= 0:
        end += len(END_OF_THOUGHT)
        return at - len(text[end:at].lstrip())
    opened = THINK in text[:at] or turn["prompt"].rstrip().endswith(THINK)
    return at if opened else 0


def exchange(turn: dict) -> list[Message]:
    """Return the calls of a logged turn, each with its result, and who else spoke after it."""
    calls = calls_of(turn.get("reply"))
    followed = turn.get("followed") or ()
    results = [message for message in followed if message["role"] == "tool"]
    paired = len(results) == len(calls)
    found = []
    for k, call in enumerate(calls):
        found.append(Message("call", call["name"], call_text(call)))
        if paired:
            found.append(_result(results[k], call["name"]))
    for message in followed:
        if message["role"] != "tool":
            found.append(_spoken(message, unread=not (turn["valid"] or calls)))
        elif not paired:
            found.append(_result(message, "tool"))
    return found


def calls_of(reply: dict | None) -> list[dict]:
    """Return the calls {"name", "arguments"} of a response as a chat message."""
    return [call["function"] for call in (reply or {}).get("tool_calls") or ()]


def call_text(call: dict) -> str:
    """Return a call {"name", "arguments"} as Python writes one; long ones take several lines."""
    arguments = call.get("arguments") or {}
    if not isinstance(arguments, dict):
        return f"{call['name']}({arguments})"
    texts = [f"{name}={_value(value)}" for name, value in arguments.items()]
    line = f"{call['name']}({', '.join(texts)})"
    if len(line) <= LINE and "\n" not in line:
        return line
    return f"{call['name']}(\n" + "".join(f"  {text},\n" for text in texts) + ")"


def _value(value) -> str:
    """Return JSON, but a text of several lines (code, say) as it is."""
    if isinstance(value, str) and "\n" in value:
        return f'"""\n{value}\n"""'
    return json.dumps(value, ensure_ascii=False)


def _result(message: dict, tool: str) -> Message:
    text = _content(message)
    return Message("result", message.get("name") or tool, text, text.startswith("Error"))


def _spoken(message: dict, unread: bool) -> Message:
    """unread: whether the response could not be read, so that this may be a word about it"""
    text = _content(message)
    wrong = unread and text.startswith("Error")
    return Message("error" if wrong else message["role"], "", text, wrong)


def _content(message: dict) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
