"""Finds the tool calls in a model's response. Pure functions of text.

The format is the one of Hermes and Qwen: JSON between <tool_call> and </tool_call>.
"""

import json
import re

CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


class BadCall(ValueError):
    """A call cannot be read. The text says why, in words for the model."""


def parse(text: str) -> tuple[str, list[dict], int]:
    """Return the words before the first call, the calls {"name", "arguments"}, and where the first
    one begins (len(text) if there is none). BadCall: one of them cannot be read"""
    found = list(CALL.finditer(text))
    if not found:
        return text.strip(), [], len(text)
    calls = []
    for match in found:
        try:
            call = json.loads(match[1])
            calls.append({"name": call["name"], "arguments": dict(call["arguments"])})
        except (ValueError, KeyError, TypeError) as error:
            raise BadCall("the call is not valid JSON with a name and arguments") from error
    return text[: found[0].start()].strip(), calls, found[0].start()
