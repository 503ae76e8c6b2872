"""Asks a chat template, before a run begins, in which format it writes calls.

A model writes calls as its template does. If `envs.tool_calls` did not find them there, every call
of the run would count as an answer, without a word.
"""

from collections.abc import Callable

from envs.tool_calls import read
from envs.tool_schemas import arguments_of

KNOWN = "known are the JSON of Hermes, Qwen, Llama 3 and DeepSeek, and the XML of Qwen3.5"
ARGUMENTS = {"text": 'a "b" <c>\nü', "number": 12}
PROPERTIES = {"text": {"type": "string", "description": "A text."},
              "number": {"type": "integer", "description": "A number."}}  # fmt: skip
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["text", "number"]}
FUNCTION = {"name": "probe", "description": "Probe.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"type": "function", "id": "call00100", "function": dict(name="probe", arguments=ARGUMENTS)}


def check_calls(write: Callable[..., str], chat) -> None:
    """Let a chat template write a call after an episode's first prompt, and look for it there.

    write(messages, template): returns the text of a prompt
    chat: the messages, with `template`, the arguments of the chat template
    ValueError: the call is not found again
    """
    if not chat.template.get("tools"):
        return
    reply = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    template = chat.template | {"tools": [TOOL]}
    alone = template | {"add_generation_prompt": False}
    try:
        asked, called = write(chat, template), write([*chat, reply], alone)
        if not called.startswith(asked):  # it opens a thought, but not where there is a call
            asked = write(chat, alone)
    except Exception as error:  # templates raise whatever they like
        raise ValueError("the model's chat template cannot write the call of a tool") from error
    written = called.removeprefix(asked)
    calls = [(call["name"], _arguments(call)) for call in read(written).calls]
    if calls != [("probe", ARGUMENTS)]:
        written = " ".join(written.split())
        line = f"the model's chat template writes calls in an unknown format, {written!r:.150}"
        raise ValueError(f"{line}; {KNOWN}")


def _arguments(call: dict) -> dict:
    try:
        return arguments_of(call, TOOL)
    except ValueError:
        return {}
