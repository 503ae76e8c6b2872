"""What a model's chat template does with tools, found out by rendering a short conversation.

A run with tools begins with `probe`: a template that shows no tools or no results, or that writes
calls in a format which `envs.tool_calls` does not read, is refused with one line.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from textwrap import shorten

from envs.tool_calls import read
from envs.tool_schemas import arguments_of

FORMATS = "Hermes and Qwen (JSON), Qwen3.5 (XML), Llama 3 (JSON), DeepSeek"
NAME, RESULT = "probe_tool_7431", "result_7431"
PROPERTIES = {"text": {"type": "string", "description": "A text."},
              "number": {"type": "integer", "description": "A number."}}  # fmt: skip
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["text", "number"]}
FUNCTION = {"name": NAME, "description": "Probe the template.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}


@dataclass(frozen=True)
class ToolTemplate:
    """several: whether a message may hold several calls
    arguments_are_text: whether a call's arguments must be JSON in a text, and not a dict
    """

    several: bool = True
    arguments_are_text: bool = False

    def fit(self, messages: list[dict]) -> list[dict]:
        """Return the messages as the template takes them.

        A message with several calls becomes several messages, each with its result after it.
        """
        fitted, k = [], 0
        while k < len(messages):
            message, k = messages[k], k + 1
            calls = [self._written(call) for call in message.get("tool_calls") or []]
            if calls:
                message = message | {"tool_calls": calls}
            if len(calls) < 2 or self.several:
                fitted.append(message)
                continue
            for n, call in enumerate(calls):
                fitted.append(message | {"tool_calls": [call]} | ({"content": ""} if n else {}))
                fitted += messages[k : k + 1]
                k += 1
        return fitted

    def _written(self, call: dict) -> dict:
        function = call["function"]
        if self.arguments_are_text:
            text = json.dumps(function["arguments"], ensure_ascii=False)
            function = function | {"arguments": text}
        return call | {"function": function}


def probe(tokenizer, system: str, template: dict) -> ToolTemplate:
    """Render conversations with calls and results, and look for them in the text.

    tokenizer: has apply_chat_template
    system: the environment's system message, which may describe the tools by itself
    template: arguments of the chat template, with "tools"
    ValueError: the template cannot serve an environment with tools; the line says why
    """

    def render(messages: list[dict], tools: list[dict], prompt: bool) -> str:
        options = template | {"tools": tools, "tokenize": False, "add_generation_prompt": prompt}
        try:
            return tokenizer.apply_chat_template(messages, **options)
        except Exception as error:  # templates raise whatever they like
            reason = shorten(f"{type(error).__name__}: {error}", 200)
            raise ValueError(f"{refused} cannot render a conversation ({reason})") from error

    name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
    refused = f"the chat template of {name!r}"
    head = [{"role": "system", "content": system}] if system else []
    head.append({"role": "user", "content": "What now?"})
    unknown = {tool["function"]["name"] for tool in template["tools"]}
    if NAME not in render(head, [TOOL], True):
        shown = render(head, template["tools"], True)
        if lacking := [tool for tool in unknown if tool not in shown]:
            how = "use a model made for tools, or describe them in the system message"
            raise ValueError(f"{refused} shows no tools ({', '.join(sorted(lacking))}): {how}")
    render_one = partial(render, tools=[TOOL])
    kinds = [ToolTemplate(several, text) for several in (True, False) for text in (False, True)]
    kind = next((kind for kind in kinds if _is_found(render_one, head, kind)), None)
    if kind is None:
        raise ValueError(f"{refused} writes tool calls in no known format; known: {FORMATS}")
    if RESULT not in render_one([*head, *kind.fit(_conversation(1))], prompt=True):
        raise ValueError(f"{refused} does not show what tools answer (messages of the role tool)")
    return kind


def _conversation(calls: int) -> list[dict]:
    """A message with so many calls, and their results."""
    numbers = [f"call001{k:02d}" for k in range(calls)]
    functions = [{"name": NAME, "arguments": _arguments(k)} for k in range(calls)]
    made = [
        {"type": "function", "id": number, "function": function}
        for number, function in zip(numbers, functions, strict=True)
    ]
    named = {"role": "tool", "name": NAME, "content": RESULT}
    results = [named | {"tool_call_id": number} for number in numbers]
    return [{"role": "assistant", "content": "", "tool_calls": made}, *results]


def _arguments(k: int) -> dict:
    return {"text": 'a "b" <c>\nü', "number": 12 + k}


def _is_found(render: Callable, head: list[dict], kind: ToolTemplate) -> bool:
    """Return whether the calls that a template wrote are the ones that are read."""
    calls = 1 + kind.several
    try:
        message = kind.fit(_conversation(calls))[0]
        whole, prompt = render([*head, message], prompt=False), render(head, prompt=True)
        if not whole.startswith(prompt):  # it opens a thought only before an answer
            prompt = render(head, prompt=False)
        found = read(whole.removeprefix(prompt)).calls
        arguments = [arguments_of(call, TOOL) for call in found if call["name"] == NAME]
    except ValueError:  # it takes no such message, or the call cannot be read
        return False
    return arguments == [_arguments(k) for k in range(calls)]
