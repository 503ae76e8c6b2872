"""Answers in OpenAI's form: what a program gets for a response."""

import json

import pytest

from envs.agents.completions import chunks, completion, parse_response
from envs.agents.requests import request_of
from envs.pool.cursor import ResponseText

ASKED = [{"role": "user", "content": "hello"}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TYPES = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": TYPES}}


def request(sampling="refuse", **options):
    return request_of({"messages": ASKED} | options, sampling)


def answer(response: str, **options) -> dict:
    asked = request(**options)
    made = completion(asked, response, parse_response(asked, response), turn=3, tokens=2)
    json.dumps(made)
    return made["choices"][0]


def test_a_text_without_a_call():
    choice = answer("Hi.")
    assert choice["message"] == {"role": "assistant", "content": "Hi."}
    assert choice["finish_reason"] == "stop"


def test_a_tool_call():
    choice = answer(f"Well.\n{CALL}\n{CALL}", tools=[TOOL])
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Well."
    first, second = choice["message"]["tool_calls"]
    # ids come from turn and place: a replay has the same
    assert (first["id"], second["id"]) == ("call00300", "call00301")
    assert first["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert answer(CALL, tools=[TOOL])["message"]["content"] is None


def test_text_values_are_converted_to_the_schemas_types():
    xml = ("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n"
           "</parameter>\n</function>\n</tool_call>")  # fmt: skip
    [call] = answer(xml, tools=[TOOL])["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": 1, "b": "2"}


def test_schemas_that_allow_everything_or_nothing():
    # LangChain writes the first for a dict, and OpenAI's strict mode the second.
    free = {"type": "object", "additionalProperties": True}
    strict = {"type": "object", "properties": {"x": {"type": "integer"}}}
    types = {"a": free, "b": strict | {"additionalProperties": False}, "c": True}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": types}}}
    xml = "".join(f'<parameter={name}>{{"x": 1}}</parameter>' for name in "abc")
    [call] = answer(f"<function=f>{xml}</function>", tools=[tool])["message"]["tool_calls"]
    given = json.loads(call["function"]["arguments"])
    assert given["a"] == given["b"] == {"x": 1}
    # What does not fit goes to the program, whose own check may say something about it.
    xml = '<parameter=b>{"y": 1}</parameter>'
    [call] = answer(f"<function=f>{xml}</function>", tools=[tool])["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"b": {"y": 1}}
    whole = '<tool_call>{"name": "f", "arguments": {"c": 1.0}}</tool_call>'
    [call] = answer(whole, tools=[tool])["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"c": 1.0}


NULLS = dict.fromkeys(("enum", "anyOf", "items", "properties", "additionalProperties"))
UNREADABLE = [{"enum": 5}, {"anyOf": [3]}, {"type": 7}, {"properties": ["a"]}, {"items": "x"}]


@pytest.mark.parametrize("schema", [{"type": "integer"} | NULLS, {"type": None}, *UNREADABLE])
def test_nullable_and_missing_schemas(schema):
    known = {"x": schema, "y": {"type": "integer", "properties": {"a": None}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": known}}}
    xml = "<parameter=x>3</parameter><parameter=y>4</parameter>"
    whole = '<tool_call>{"name": "f", "arguments": {"x": 3.0, "y": 4.0}}</tool_call>'
    for response in (f"<function=f>{xml}</function>", whole):
        [call] = answer(response, tools=[tool])["message"]["tool_calls"]
        given = json.loads(call["function"]["arguments"])
        assert given["y"] == 4 and float(given["x"]) == 3


def test_a_program_that_wants_one_call_gets_the_first():
    other = CALL.replace("1", "2")
    for parallel, n in ((True, 2), (None, 2), (False, 1)):
        message = answer(CALL + other, tools=[TOOL], parallel_tool_calls=parallel)["message"]
        assert len(message["tool_calls"]) == n
        assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


def test_half_of_a_surrogate_pair_becomes_a_question_mark():
    half = '<tool_call>{"name": "add", "arguments": {"b": "hi \\ud83d"}}</tool_call>'
    [call] = answer(half, tools=[TOOL])["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"b": "hi ?"}


@pytest.mark.parametrize("response", [CALL, "<tool_call>{oh</tool_call>"])
def test_without_tools_a_call_is_plain_text(response):
    asked = request()
    assert not parse_response(asked, response).error
    assert answer(f"So: {response}")["message"] == {
        "role": "assistant", "content": f"So: {response}"
    }  # fmt: skip


def test_reasoning_has_a_field_of_its_own():
    message = answer(f"<think>\nhm\n</think>\n\nWell. {CALL}", tools=[TOOL])["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "Well.")
    message = answer(f"<think>\n{CALL}\n</think>\n\nNo call.")["message"]
    assert (message["reasoning_content"], message["content"]) == (CALL, "No call.")
    message = answer("<think>\na\n</think>\n\nmore\n</think>\n\nend")["message"]
    thought = "a\n</think>\n\nmore"  # up to where the answer begins: no word is lost
    assert (message["reasoning_content"], message["content"]) == (thought, "end")


def test_an_unreadable_call_is_plain_text():
    asked = request(tools=[TOOL])
    message = parse_response(asked, "<tool_call>{oh</tool_call>")
    assert "not valid JSON" in message.error
    for thought in ("", "<think>\nhm\n</think>\n\n"):  # which is said once
        text = f"{thought}<tool_call>{{oh</tool_call>"
        message = answer(text, tools=[TOOL])["message"]
        assert message == {"role": "assistant", "content": text}


def test_stop_texts_cut_the_answer_but_not_the_trained_response():
    choice = answer(ResponseText("one\ntwo", truncated=True), stop=["\n", "two"])
    assert choice["message"]["content"] == "one" and choice["finish_reason"] == "stop"


def test_the_response_limit():
    assert answer(ResponseText("on", truncated=True))["finish_reason"] == "length"
    assert answer(ResponseText(CALL, truncated=True), tools=[TOOL])["finish_reason"] == "length"


def test_a_stream_has_the_same_content_as_an_answer():
    asked = request(tools=[TOOL])
    whole = completion(asked, CALL, parse_response(asked, CALL), turn=3, tokens=2)
    first, ended, used = chunks(whole, usage=True)
    message = whole["choices"][0]["message"]
    [call] = first["choices"][0]["delta"].pop("tool_calls")
    assert call == {"index": 0} | message.pop("tool_calls")[0]
    assert first["choices"][0]["delta"] == message
    assert ended["choices"][0]["finish_reason"] == "tool_calls"
    assert used["usage"] == {"prompt_tokens": 0, "completion_tokens": 2, "total_tokens": 2}
    assert len(list(chunks(whole, usage=False))) == 2
