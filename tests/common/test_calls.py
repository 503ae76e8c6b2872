"""Calls found in responses, each format in its real chat template, and what cannot be read."""

import importlib.util
import json
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from transformers import AutoTokenizer

from common.calls import read
from common.chat import Chat
from common.template import check_calls
from memory.render import Renderer
from models.embedded import CHAT_TEMPLATE

HERMES = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
LLAMA = '{"name": "add", "parameters": {"a": 1}}'
XML = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    '{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
V31 = '<｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>'
FORMS = {
    "hermes": HERMES,
    "hermes without its end": HERMES.removesuffix("\n</tool_call>"),
    "hermes, arguments in a text": HERMES.replace('{"a": 1}', r'"{\"a\": 1}"'),
    "llama": LLAMA,
    "llama with a type": LLAMA.replace("{", '{"type": "function", ', 1),
    "llama with its tag": f"<|python_tag|>{LLAMA}",
    "deepseek v3": V3,
    "deepseek v3.1": V31,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_call(form):
    call = FORMS[form]
    message = read(call)
    assert message.calls == ({"name": "add", "arguments": {"a": 1}},)
    assert not message.error and not message.answer
    assert message.at == 0
    thought = "<think>\nI shall add.\n</think>\n\n"
    message = read(thought + call)
    assert message.calls == ({"name": "add", "arguments": {"a": 1}},)
    assert message.at == len(thought)
    assert message.content.startswith(thought.strip())


def test_values_in_xml_are_texts_of_any_lines():
    text = XML.replace("1\n", "x = 1\n\nif x < 2:\n  </par\n")
    value = "x = 1\n\nif x < 2:\n  </par"
    assert read(text).calls == ({"name": "add", "arguments": {"a": value}, "raw": True},)
    nothing = "<tool_call><function=look></function></tool_call>"
    assert read(nothing).calls == ({"name": "look", "arguments": {}, "raw": True},)
    # Qwen3-Coder leaves out the first mark at times
    assert read(XML.removeprefix("<tool_call>\n")).calls == read(XML).calls


@pytest.mark.parametrize("call", [HERMES, XML, V3, V31])
def test_several_calls_of_a_message(call):
    other = call.replace("add", "take")
    message = read(f"First this: {call}\n{other} and done")
    assert [one["name"] for one in message.calls] == ["add", "take"]
    assert message.answer.startswith("First this:") and "add" not in message.answer


@pytest.mark.parametrize("between", ["; ", "\n", ""])
def test_several_calls_without_marks(between):
    message = read(f"{LLAMA}{between}{LLAMA.replace('add', 'take')}")
    assert [one["name"] for one in message.calls] == ["add", "take"]
    assert read(f"{LLAMA}; {LLAMA[:-3]}").error.startswith("the call is not valid JSON")


def test_marks_inside_a_value_are_text():
    arguments = {"text": "</tool_call><tool_call><function=x></think"}
    call = json.dumps({"name": "write", "arguments": arguments})
    message = read(f"<tool_call>{call}</tool_call>")
    assert message.calls == ({"name": "write", "arguments": arguments},)


def test_an_answer():
    message = read("  It is 3. ")
    assert (message.content, message.answer, message.at, message.calls) == (
        "It is 3.", "It is 3.", 2, ())  # fmt: skip
    message = read(f"<think>Call it: {HERMES}</think>\nIt is 3.")
    assert (message.answer, message.calls, message.error) == ("It is 3.", (), "")
    assert message.at == len(f"<think>Call it: {HERMES}</think>\n")
    # a template may open the thought: then the response has only its end
    assert read(f"hm {LLAMA}</think>It is 3.").answer == "It is 3."
    for answer in (
        '{"total": 3}',
        '{"name": "Bob"}',
        "a < b <tool",
        '"name"',
        "[1]",
        f"It: {LLAMA}",
    ):
        assert (read(answer).answer, read(answer).error) == (answer, "")


def nested(depth: int) -> str:
    """Return a call with a number in `depth` lists: `depth` + 3 levels with the call itself."""
    return HERMES.replace("1", "[" * depth + "1" + "]" * depth)


def test_a_nested_argument_is_read():
    (call,) = read(nested(61)).calls
    assert str(call["arguments"]["a"]) == "[" * 61 + "1" + "]" * 61


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (f"<think>I call {HERMES}", "the thought was not closed with </think>"),
        ("<think>a</think>b<think>c", "the thought was not closed with </think>"),
        ("", "the message is empty"),
        ("<think>a</think>\n", "the message is empty"),
        ("<tool_call>", "the call is not valid JSON (Expecting value)"),
        (HERMES[:40], "the call is not valid JSON (Expecting "),
        (LLAMA[:-3], "the call is not valid JSON (Expecting "),
        ("<|python_tag|>add.call(a=1)", "the call is not valid JSON (Expecting value)"),
        ("<tool_call>[1]</tool_call>", "the call is not a JSON object"),
        ('<tool_call>{"name": "add"}', 'a call must be a JSON object with "name" and "arg'),
        ('<tool_call>{"name": 3, "arguments": {}}', 'a call must be a JSON object with "name"'),
        ('<tool_call>{"name": "a", "arguments": [1]}', "the arguments of a call must be a JSON ob"),
        ('<tool_call>{"name": "a", "arguments": "x"}', "the call is not valid JSON"),
        ("<tool_call>" + '{"a":' * 99_999, "the call is not valid JSON ("),
        (nested(62), "the call's JSON is nested more than 64 levels deep"),
        (nested(900), "the call's JSON is nested more than 64 levels deep"),
        (f"{HERMES}<tool_call>add(1)</tool_call>", "the call is not valid JSON"),
        (XML[:30], "the call does not have the form <function=name> ... </function>"),
        (XML.replace("</parameter>", ""), "the parameters do not have the form <parameter=name>"),
        (XML.replace("</function>", "<parameter=a>2</parameter></function>"), "the call gives 'a'"),
        ("<｜tool▁call▁begin｜>add(1)", "the call does not name a tool"),
        # half of a call is no answer, which would end the episode
        (HERMES.replace("1}", '"</think>"}'), "</tool_call> stands there without the beginning"),
    ],
)
def test_unreadable_calls(response, error):
    message = read(response)
    assert message.error.startswith(error) and not message.calls
    assert message.content == response.strip() or message.content == response


def test_reading_is_linear():  # in the length of a text: a quadratic search would take hours
    for text in (
        "<tool_call>",
        "<function=a>",
        "<parameter=a>",
        '{"name": ',
        "</think>",
        "\n",
        "{",
    ):
        for head in ("", "<function=a>", '{"name":', "<｜tool▁call▁begin｜>", "<tool_call>"):
            message = read(head + text * 50_000 + "</function>")
            assert message.error or not message.calls or text == "\n"


def template(name: str) -> str:
    """A chat template as the package trl ships it, which is not imported."""
    found = importlib.util.find_spec("trl")
    if found is None:
        pytest.skip("the package trl is not installed")
    return (Path(found.origin).parent / "chat_templates" / f"{name}.jinja").read_text()


@pytest.fixture
def write():
    """Return a function that gives the tokenizer a chat template and writes with it."""
    tokenizer = AutoTokenizer.from_pretrained(Path(__file__).parents[2] / "models" / "tiny")

    def use(text: str):
        tokenizer.chat_template = text
        return Renderer(tokenizer, prompt_limit=10_000).write

    return use


def chat(**options) -> Chat:
    look = {"name": "look", "description": "Look.", "parameters": {}}
    tools = {"tools": [{"type": "function", "function": look}]}
    system, user = {"role": "system", "content": "Hi."}, {"role": "user", "content": "Look!"}
    return Chat([system, user], [], [], tools | options)


FOUND = "qwen2_5 qwen3 qwen3_5_think qwen3_5_nothink llama3_1 llama3_2 qwen3_8 nemotron_3_nano"


@pytest.mark.parametrize("name", FOUND.split())
def test_calls_of_real_templates_are_found_again(name, write):
    check_calls(write(template(name)), chat())
    check_calls(write(template(name)), chat(enable_thinking=False))


def test_the_embedded_models_template(write):
    check_calls(write(CHAT_TEMPLATE), chat())


def test_deepseeks_template_wants_the_arguments_as_text():
    # it lists no tools and is refused for that; its models read of them in the system message
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    function = {"name": "add", "arguments": '{"a": 1}'}
    calls = [{"type": "function", "function": function}] * 2
    messages = [
        dict(role="user", content="?"),
        dict(role="assistant", content="", tool_calls=calls),
    ]
    text = environment.from_string(template("deepseekv3")).render(messages=messages, bos_token="")
    expected = {"name": "add", "arguments": {"a": 1}}
    assert read(text.removeprefix("<｜User｜>?<｜Assistant｜>")).calls == (expected, expected)


def test_templates_whose_calls_are_not_found(write):
    unknown = (
        r"the model's chat template writes calls in an unknown format, '.*; known are the JSON "
    )
    for name in ("gptoss", "glm4moe", "gemma4"):
        with pytest.raises(ValueError, match=f"^{unknown}") as raised:
            check_calls(write(template(name)), chat())
        assert "\n" not in str(raised.value)
    plain = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"
    broken = CHAT_TEMPLATE.replace("call.function | tojson", "raise_exception('no')")
    for text, line in {
        plain: "writes calls in an unknown",
        broken: "cannot write the call",
    }.items():
        with pytest.raises(ValueError, match=f"^the model's chat template {line}"):
            check_calls(write(text), chat())
        check_calls(write(text), chat(tools=None))
