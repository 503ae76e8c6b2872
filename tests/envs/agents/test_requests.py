"""Requests in OpenAI's form: what is read, what is refused and why."""

import json

import pytest

from common.chat import Sampling
from envs.agents.errors import Refused
from envs.agents.requests import request_of

ASKED = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def request(sampling="refuse", **options):
    return request_of({"messages": ASKED} | options, sampling)


REFUSED = [
    ({"temperature": 0}, "temperature 0 is greedy"),
    ({"top_p": 0.9}, "top_p cuts the distribution off"),
    ({"top_k": 20}, "top_k cuts the distribution off"),
    ({"min_p": 0.1}, "min_p cuts"),
    ({"typical_p": 0.9}, "typical_p cuts"),
    ({"xtc_probability": 0.5}, "xtc_probability cuts"),
    ({"grammar": "root ::= 1"}, "grammar allows only some tokens"),
    ({"logit_bias": {"3": 1}}, "logit_bias changes the distribution"),
    ({"presence_penalty": 0.5}, "presence_penalty changes"),
    ({"frequency_penalty": 0.5}, "frequency_penalty changes"),
    ({"repetition_penalty": 1.1}, "repetition_penalty changes"),
    ({"response_format": {"type": "json_object"}}, "response_format allows only some tokens"),
    ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice forces a tool"),
    ({"tools": [TOOL], "tool_choice": TOOL}, "tool_choice forces a tool"),
    ({"n": 2}, "n asks for several answers, and a turn has one"),
    ({"guided_json": {"type": "object"}}, "guided_json allows only some tokens"),
    ({"min_tokens": 5}, "min_tokens allows only some tokens"),
    ({"ignore_eos": True}, "ignore_eos allows only some tokens"),
    ({"best_of": 4}, "best_of keeps the likeliest"),
    ({"use_beam_search": True}, "use_beam_search keeps the likeliest"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_change_the_policys_distribution_are_refused_or_ignored(options, message):
    with pytest.raises(Refused, match=f"{message}.*--endpoint-sampling run") as refused:
        request(**options)
    assert refused.value.status == 400
    can_serve = not set(options) & {
        "guided_json", "min_tokens", "ignore_eos", "best_of", "use_beam_search", "typical_p",
        "xtc_probability", "grammar",
    }  # fmt: skip
    assert ("or untrained can serve it" in str(refused.value)) == can_serve
    assert request("run", **options).sampling == Sampling()  # the run's own sampling


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
def test_untrained_calls_are_sampled_with_the_options_of_the_request(options, wish):
    asked = request("untrained", **options)
    assert asked.sampling.extra == wish
    assert asked.sampling.temperature == (0.5 if "top_p" in options else None)
    assert not request("untrained", top_p=1, n=1, tool_choice="auto").sampling.extra


NOBODY_CAN = [
    {"guided_json": {"type": "object"}}, {"min_tokens": 5}, {"ignore_eos": True}, {"best_of": 2},
    {"top_p": 0}, {"top_p": 7}, {"top_k": 1.5}, {"top_k": True}, {"n": 0}, {"n": 1000},
    {"presence_penalty": "much"}, {"repetition_penalty": 0}, {"logit_bias": {"3": 101}},
    {"response_format": {"type": "xml"}}, {"response_format": {"type": "json_schema"}},
    {"tool_choice": "required"}, {"tools": [ADD], "tool_choice": "some"},
    {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "mul"}}},
]  # fmt: skip


@pytest.mark.parametrize("options", NOBODY_CAN)
def test_a_sampling_option_out_of_range_is_refused(options):
    with pytest.raises((Refused, ValueError, TypeError, KeyError)) as refused:
        request("untrained", **options)
    assert not isinstance(refused.value, Refused) or "cannot be" in str(refused.value)


def test_options_at_their_default_values_are_accepted():
    nothing = dict(
        temperature=1, top_p=1.0, top_k=-1, min_p=0, logit_bias={}, presence_penalty=0.0, n=1,
        response_format={"type": "text"}, tool_choice="auto", stop=None, max_tokens=None,
        frequency_penalty=None, repetition_penalty=1.0, seed=3, user="me", logprobs=False,
        ignore_eos=False, min_tokens=0, parallel_tool_calls=True,
    )  # fmt: skip
    assert request(**nothing).sampling == Sampling(1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature must be from 0.001 to 1000"),
        ({"temperature": float("nan")}, "temperature must be from"),
        ({"max_tokens": 0}, "max_tokens must be a whole number above 0"),
        ({"max_completion_tokens": "many"}, "max_completion_tokens must be"),
        ({"stop": [3]}, "stop must be"),
        ({"stop": [""]}, "stop must be"),
        ({"functions": [{}]}, "please use tools"),
        ({"function_call": "auto"}, "function_call is the old name of tool_choice"),
        ({"web_search_options": {"search_context_size": "low"}}, "that OpenAI hosts"),
        ({"audio": {"voice": "alloy"}}, "audio is not possible: the policy writes text"),
        ({"continue_final_message": True}, "continue_final_message begins the answer"),
        ({"truncate_prompt_tokens": 9}, "truncate_prompt_tokens is not possible"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "of type function, not custom"),
        ({"logprobs": True}, "logprobs is not given here"),
        ({"top_logprobs": 3}, "logprobs is not given here"),
        ({"prompt_logprobs": 1}, "prompt_logprobs is not given here"),
        ({"stop_token_ids": [2]}, "stop_token_ids is not given here"),
        ({"tools": [{"function": {"name": 3}}]}, "each tool needs a name"),
        (
            {"tools": [{"function": {"name": "f", "parameters": {"properties": ["a"]}}}]},
            "its parameters must be a JSON schema",
        ),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, "the content of a message must be"),
        ({"messages": [{"role": "user", "content": 5}]}, "the content of a message must be"),
    ],
)
def test_malformed_requests_are_always_refused(options, message):
    for sampling in ("refuse", "run", "untrained"):
        with pytest.raises(Refused, match=message):
            request(sampling, **options)


def test_temperature_and_token_limit_come_from_the_request():
    asked = request(temperature=0.5, max_tokens=7, max_completion_tokens=9, stop="\n")
    assert asked.sampling == Sampling(0.5, 9) and asked.stop == ["\n"]


def test_template_arguments_come_from_the_request():
    asked = request(tools=[TOOL], chat_template_kwargs={"enable_thinking": False})
    assert asked.template == {"enable_thinking": False, "tools": [TOOL]}
    assert request(tools=[TOOL], tool_choice="none").template == {}


def test_messages_are_normalised_for_chat_templates():
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


def test_calls_that_come_back_have_the_order_of_our_answers():
    """OpenAI's SDK writes the arguments before the name, and a template may write what it gets."""
    function = {"arguments": '{"b": 1, "a": 2}', "name": "add"}
    call = {"function": function, "index": 0, "type": "function", "id": "call00100"}
    body = {"messages": [{"role": "assistant", "content": "", "tool_calls": [call]}]}
    [sent] = request_of(body).messages[0]["tool_calls"]
    assert json.dumps(sent) == json.dumps({
        "id": "call00100", "type": "function", "function":
        {"name": "add", "arguments": {"b": 1, "a": 2}}, "index": 0,
    })  # fmt: skip


def test_images_are_refused():
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
    with pytest.raises(Refused, match="only text can be read, not image_url"):
        request_of({"messages": picture})
