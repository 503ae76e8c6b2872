"""Requests and answers in OpenAI's form: what is read, what is refused and why, what comes back."""

import json

import pytest

from envs.completions import Refused, chunks, completion, heard, request_of
from envs.text_env import Said

ASKED = [{"role": "user", "content": "hello"}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
TYPES = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": TYPES}}


def request(sampling="refuse", **options):
    return request_of({"messages": ASKED} | options, sampling)


def answer(response: str, **options) -> dict:
    asked = request(**options)
    made = completion(asked, response, heard(asked, response), turn=3, tokens=2)
    json.dumps(made)
    return made["choices"][0]


# ---- requests -----------------------------------------------------------------------------------

REFUSED = [
    ({"temperature": 0}, "temperature 0 is greedy"),
    ({"top_p": 0.9}, "top_p cuts the distribution off"),
    ({"top_k": 20}, "top_k cuts the distribution off"),
    ({"min_p": 0.1}, "min_p cuts"),
    ({"logit_bias": {"3": 1}}, "logit_bias changes the distribution"),
    ({"presence_penalty": 0.5}, "presence_penalty changes"),
    ({"frequency_penalty": 0.5}, "frequency_penalty changes"),
    ({"repetition_penalty": 1.1}, "repetition_penalty changes"),
    ({"response_format": {"type": "json_object"}}, "response_format allows only some tokens"),
    ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice forces a tool"),
    ({"tools": [TOOL], "tool_choice": TOOL}, "tool_choice forces a tool"),
    ({"n": 2}, "n asks for several answers, and a turn has one"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_is_not_the_policys_distribution_is_refused_or_left_out(options, said):
    with pytest.raises(Refused, match=f"{said}.*--endpoint-sampling run") as refused:
        request(**options)
    assert refused.value.status == 400
    assert request("run", **options).sampling == {}  # the run's own sampling
    assert request("untrained", **options).untrained.keys() <= options.keys()


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
SUB = {"type": "function", "function": {"name": "sub"}}
FORCED = {
    "type": "object", "required": ["name", "arguments"], "additionalProperties": False,
    "properties": {"name": {"const": "add"}, "arguments": {"type": "object"}},
}  # fmt: skip
WISHES = [
    ({"temperature": 0}, {"temperature": 0}),
    ({"temperature": 0.5, "top_p": 0.9}, {"top_p": 0.9}),
    ({"n": 3}, {"n": 3}),
    ({"logit_bias": {"7": -100}}, {"logit_bias": {7: -100.0}}),
    ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "object"}}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}},
        {"response_format": {"type": "array"}},
    ),
    ({"tools": [ADD], "tool_choice": "required"}, {"tool_choice": {"anyOf": [FORCED]}}),
    (
        {"tools": [SUB, ADD],
         "tool_choice": {"type": "function", "function": {"name": "add"}}},
        {"tool_choice": {"anyOf": [FORCED]}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "wish"), WISHES)
def test_what_is_no_sample_goes_to_the_engine_as_asked(options, wish):
    asked = request("untrained", **options)
    assert asked.untrained == wish
    assert asked.sampling.get("temperature") == (0.5 if "top_p" in options else None)
    assert not request("untrained", top_p=1, n=1, tool_choice="auto").untrained


NOBODY_CAN = [
    {"top_p": 0}, {"top_p": 7}, {"top_k": 1.5}, {"top_k": True}, {"n": 0}, {"n": 1000},
    {"presence_penalty": "much"}, {"repetition_penalty": 0}, {"logit_bias": {"3": 101}},
    {"response_format": {"type": "xml"}}, {"response_format": {"type": "json_schema"}},
    {"tool_choice": "required"}, {"tools": [ADD], "tool_choice": "some"},
    {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "mul"}}},
]  # fmt: skip


@pytest.mark.parametrize("options", NOBODY_CAN)
def test_a_wish_that_makes_no_sense_is_refused(options):
    with pytest.raises((Refused, ValueError, TypeError, KeyError)) as refused:
        request("untrained", **options)
    assert not isinstance(refused.value, Refused) or "cannot be" in str(refused.value)


def test_what_asks_for_nothing_is_not_refused():
    nothing = dict(
        temperature=1, top_p=1.0, top_k=-1, min_p=0, logit_bias={}, presence_penalty=0.0, n=1,
        response_format={"type": "text"}, tool_choice="auto", stop=None, max_tokens=None,
        frequency_penalty=None, repetition_penalty=1.0, seed=3, user="me",
    )  # fmt: skip
    assert request(**nothing).sampling == {"temperature": 1.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"temperature": -1}, "temperature must be from 0.001 to 1000"),
        ({"temperature": float("nan")}, "temperature must be from"),
        ({"max_tokens": 0}, "max_tokens must be a whole number above 0"),
        ({"max_completion_tokens": "many"}, "max_completion_tokens must be"),
        ({"stop": [3]}, "stop must be"),
        ({"stop": [""]}, "stop must be"),
        ({"functions": [{}]}, "please use tools"),
    ],
)
def test_what_makes_no_sense_is_refused_in_any_case(options, said):
    for sampling in ("refuse", "run", "untrained"):
        with pytest.raises(Refused, match=said):
            request(sampling, **options)


def test_the_sampling_of_a_call():
    asked = request(temperature=0.5, max_tokens=7, max_completion_tokens=9, stop="\n")
    assert asked.sampling == {"temperature": 0.5, "max_tokens": 9} and asked.stop == ["\n"]


def test_arguments_of_the_template():
    asked = request(tools=[TOOL], chat_template_kwargs={"enable_thinking": False})
    assert asked.template == {"enable_thinking": False, "tools": [TOOL]}
    assert request(tools=[TOOL], tool_choice="none").template == {}


def test_messages_become_what_templates_want():
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    odd = {"id": "y", "type": "function", "function": {"name": "add", "arguments": "a = 1"}}
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    given = [
        {"role": "developer", "content": parts},
        {"role": "user", "content": "?", "name": None},
        {"role": "assistant", "content": None, "tool_calls": [call, odd], "refusal": None},
        {"role": "tool", "tool_call_id": "x", "content": "3"},
    ]
    system, user, called, result = request_of({"messages": given}).messages
    assert system == {"role": "system", "content": "one two"}
    assert user == {"role": "user", "content": "?"}
    assert called["content"] == "" and "refusal" not in called
    assert [c["function"]["arguments"] for c in called["tool_calls"]] == [
        {"a": 1}, {"arguments": "a = 1"}
    ]  # fmt: skip
    assert result == given[3]


def test_pictures_are_refused():
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
    with pytest.raises(Refused, match="only text can be read, not image_url"):
        request_of({"messages": picture})


# ---- answers ------------------------------------------------------------------------------------


def test_words():
    choice = answer("Hi.")
    assert choice["message"] == {"role": "assistant", "content": "Hi."}
    assert choice["finish_reason"] == "stop"


def test_a_call():
    choice = answer(f"Well.\n{CALL}\n{CALL}", tools=[TOOL])
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Well."
    first, second = choice["message"]["tool_calls"]
    # ids come from turn and place: a replay has the same
    assert (first["id"], second["id"]) == ("call00300", "call00301")
    assert first["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert answer(CALL, tools=[TOOL])["message"]["content"] is None


def test_values_that_are_texts_become_what_the_schema_says():
    xml = ("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n"
           "</parameter>\n</function>\n</tool_call>")  # fmt: skip
    [call] = answer(xml, tools=[TOOL])["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": 1, "b": "2"}


@pytest.mark.parametrize("response", [CALL, "<tool_call>{oh</tool_call>"])
def test_without_tools_a_call_is_words(response):
    asked = request()
    assert not heard(asked, response).error
    assert answer(f"So: {response}")["message"] == {
        "role": "assistant", "content": f"So: {response}"
    }  # fmt: skip


def test_a_thought_stands_apart():
    message = answer(f"<think>\nhm\n</think>\n\nWell. {CALL}", tools=[TOOL])["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "Well.")
    message = answer(f"<think>\n{CALL}\n</think>\n\nNo call.")["message"]
    assert (message["reasoning_content"], message["content"]) == (CALL, "No call.")


def test_a_call_that_cannot_be_read_is_words():
    asked = request(tools=[TOOL])
    message = heard(asked, "<tool_call>{oh</tool_call>")
    assert "not valid JSON" in message.error
    assert answer("<tool_call>{oh</tool_call>", tools=[TOOL])["message"] == {
        "role": "assistant", "content": "<tool_call>{oh</tool_call>"
    }  # fmt: skip


def test_stops_cut_the_answer_and_not_the_sample():
    choice = answer(Said("one\ntwo", truncated=True), stop=["\n", "two"])
    assert choice["message"]["content"] == "one" and choice["finish_reason"] == "stop"


def test_the_response_limit():
    assert answer(Said("on", truncated=True))["finish_reason"] == "length"
    assert answer(Said(CALL, truncated=True), tools=[TOOL])["finish_reason"] == "length"


def test_a_stream_has_the_same_as_an_answer():
    asked = request(tools=[TOOL])
    whole = completion(asked, CALL, heard(asked, CALL), turn=3, tokens=2)
    said, ended, used = chunks(whole, usage=True)
    message = whole["choices"][0]["message"]
    [call] = said["choices"][0]["delta"].pop("tool_calls")
    assert call == {"index": 0} | message.pop("tool_calls")[0]
    assert said["choices"][0]["delta"] == message
    assert ended["choices"][0]["finish_reason"] == "tool_calls"
    assert used["usage"] == {"prompt_tokens": 0, "completion_tokens": 2, "total_tokens": 2}
    assert len(list(chunks(whole, usage=False))) == 2
