"""Checks, before a run begins, that a chat template writes all that the prompts will contain.

A template drops things silently: tools, results of tools, or the reasoning of earlier turns
(Qwen3's drops reasoning before the last user message). The run would train on incomplete prompts.
Also, a model writes calls as its template does. If `common.calls` cannot read that format, each
call of the run would count as an answer.
"""

from collections.abc import Callable
from functools import cache, partial
from textwrap import shorten

from common.calls import read
from common.chat import END_OF_THOUGHT, THINK, Chat
from common.plugins import UserError

KNOWN = "known are the JSON of Hermes, Qwen, Llama 3 and DeepSeek, and the XML of Qwen3.5"
ARGUMENTS = {"text": 'a "b" <c>\nü', "number": 12}
PROPERTIES = {
    "text": {"type": "string", "description": "A text."},
    "number": {"type": "integer", "description": "A number."},
}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["text", "number"]}
FUNCTION = {"name": "probe", "description": "Probe.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"type": "function", "id": "call00100", "function": dict(name="probe", arguments=ARGUMENTS)}
THOUGHT, RESULT = "an earlier thought", "the result of the call"


def check_template(write: Callable[..., str], chat: Chat, thoughts: bool) -> None:
    """Check a chat template with the messages of an episode's first prompt.

    write(messages, template): returns the text of a prompt; thoughts: whether they are remembered
    ValueError: the template drops tools, results or thoughts
    """
    tools, write = chat.template.get("tools"), partial(_written, write)
    asked = write(chat, chat.template)
    if tools and asked == write(chat, chat.template | {"tools": None}):
        raise UserError("the model's chat template does not list tools; take a model whose does")
    check_calls(write, chat)
    response = f"{THINK}\n{THOUGHT}\n{END_OF_THOUGHT}\n\nI look."
    reply, answer = {"role": "assistant", "content": response}, {"role": "user", "content": RESULT}
    if tools:
        reply["tool_calls"] = [call_of(tools[0]["function"]["name"])]
        answer = {"role": "tool", "content": RESULT}
    remembered = write([*chat, reply, answer], chat.template)
    if RESULT not in remembered:
        raise UserError("the model's chat template leaves out the results of tools")
    thinks = not asked.rstrip().endswith(END_OF_THOUGHT)  # else the template ends the thought
    if thoughts and thinks and THOUGHT not in remembered:
        problem = "the model's chat template removes the reasoning of earlier turns"
        raise UserError(f"{problem}; with --history-thinking strip the memory does so, too")


def _written(write: Callable[..., str], messages: list[dict], template: dict) -> str:
    try:
        return write(messages, template)
    except Exception as error:  # templates raise errors of many types
        reason = shorten(" ".join(map(str, error.args)), 200)
        roles = ", ".join(dict.fromkeys(message["role"] for message in messages))
        line = f"the model's chat template refuses messages of the roles {roles}: {reason}"
        raise UserError(line) from error


def check_calls(write: Callable[..., str], chat) -> None:
    """Check that the calls which a chat template writes can be read again.

    The template writes a call after an episode's first prompt.
    write(messages, template): returns the text of a prompt
    chat: the messages, with `template`, the arguments of the chat template
    ValueError: the call cannot be read
    """
    if not chat.template.get("tools"):
        return
    reply = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    template = chat.template | {"tools": [TOOL]}
    alone = template | {"add_generation_prompt": False}
    try:
        asked, called = write(chat, template), write([*chat, reply], alone)
        if not called.startswith(asked):  # the generation prompt opens a thought; a call does not
            asked = write(chat, alone)
    except Exception as error:  # templates raise errors of many types
        raise UserError("the model's chat template cannot write the call of a tool") from error
    written = called.removeprefix(asked)
    calls = [(call["name"], call["arguments"]) for call in read(written).calls]
    texts = {name: str(value) for name, value in ARGUMENTS.items()}  # values in XML are texts
    if calls not in ([("probe", ARGUMENTS)], [("probe", texts)]):
        written = " ".join(written.split())
        line = f"the model's chat template writes calls in an unknown format, {written!r:.150}"
        raise UserError(f"{line}; {KNOWN}")


def is_message(thing) -> bool:
    """Return whether something is a chat message as memories keep it."""
    texts = [thing.get("role"), thing.get("content")] if isinstance(thing, dict) else [None]
    return all(isinstance(text, str) for text in texts)


@cache
def refuses_two_calls(apply: Callable[..., str]) -> bool:
    """Return whether a template takes only one call per message, as Llama's does."""
    asked = {"role": "user", "content": "?"}
    calls = {"role": "assistant", "content": "", "tool_calls": [call_of("f"), call_of("g")]}
    try:
        apply([asked, calls | {"tool_calls": calls["tool_calls"][:1]}], tokenize=False)
    except Exception:  # it takes no calls at all
        return False
    try:
        apply([asked, calls], tokenize=False)
    except Exception:
        return True
    return False


def with_calls_apart(messages: list[dict], apply: Callable[..., str]) -> list[dict]:
    """Return the messages with one call each, if the template needs it.

    apply: the tokenizer's method apply_chat_template
    """
    return one_call_each(messages) if refuses_two_calls(apply) else messages


def one_call_each(messages: list[dict]) -> list[dict]:
    """Split a message with several calls into messages with one call, each before its result."""
    written, pending = [], []
    for message in messages:
        calls = message.get("tool_calls", [])
        if len(calls) > 1:
            contents = [message["content"], *[""] * (len(calls) - 1)]
            pending = [
                message | {"content": content, "tool_calls": [call]}
                for content, call in zip(contents, calls, strict=True)
            ]
            continue
        if pending and message["role"] == "tool":
            written.append(pending.pop(0))
        written.append(message)
    return written + pending


def call_of(name: str) -> dict:
    return {"type": "function", "function": {"name": name, "arguments": {}}}
