"""The other APIs of the endpoint, as the official SDKs use them: one turn for each completion."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from envs.agents import endpoint
from envs.agents.completions import parse_response
from envs.agents.dialect import MESSAGES, RESPONSES
from envs.agents.endpoint import endpoint as server
from envs.agents.errors import Refused
from envs.agents.session import Session
from envs.agents.tokens import TokenCounter
from envs.pool.cursor import ResponseText

anthropic = pytest.importorskip("anthropic")
openai = pytest.importorskip("openai")

PROPERTIES = {"a": {"type": "integer"}, "b": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": PROPERTIES}
ADD = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
SYSTEM = "You add."
ASKED = [{"role": "user", "content": "1 + 2?"}]


class Player:
    """A session of the endpoint, and a policy that says what it is told to."""

    def __init__(self, **options):
        self.session, self.turns = Session(**options), count(1)
        server().open(self.session)
        to = dict(api_key=self.session.secret, base_url=server().base_url, max_retries=0)
        self.openai, self.anthropic = openai.OpenAI(**to), anthropic.Anthropic(**to)

    def answer(self, response: str, ask, **options):
        """Return what `ask(**options)` returns, and the Request that it made."""
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(ask, **options)
            while self.session.events.empty() and not asked.done():
                time.sleep(0.001)
            if asked.done():  # it was refused
                return asked.result(), None
            call = self.session.events.get()
            message = parse_response(call.request, response)
            call.respond(response, message, next(self.turns), tokens=5)
            return asked.result(), call.request

    def respond(self, response: str, **options):
        given = {"model": "policy", "input": "hi"} | options
        return self.answer(response, self.openai.responses.create, **given)

    def message(self, response: str, **options):
        given = {"model": "policy", "max_tokens": 9, "messages": ASKED} | options
        return self.answer(response, self.anthropic.messages.create, **given)

    def close(self):
        self.openai.close(), self.anthropic.close()
        server().close(self.session)


@pytest.fixture(scope="module")
def player():
    made = Player()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(endpoint, "REFUSAL_SECONDS", 0.01)


# ---- the same conversation in each API ----------------------------------------------------------


def in_chat(player, responses):
    tools, said = [{"type": "function", "function": ADD}], []
    messages = [{"role": "system", "content": SYSTEM}, *ASKED]
    for response in responses:
        create = player.openai.chat.completions.create
        given, request = player.answer(
            response, create, model="policy", messages=messages, tools=tools
        )
        said.append(request)
        reply = given.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": c.id, "content": "3"} for c in reply.tool_calls or []
        ]
        messages = [*messages, reply.model_dump(exclude_none=True), *results]
    return said


def in_responses(player, responses):
    tools, said, sent = [{"type": "function", **ADD}], [], list(ASKED)
    for response in responses:
        given, request = player.respond(response, input=sent, tools=tools, instructions=SYSTEM)
        said.append(request)
        calls = [item for item in given.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": c.call_id, "output": "3"} for c in calls
        ]
        sent = [*sent, *given.output, *results]
    return said


def in_stored_responses(player, responses):
    """The same, with previous_response_id instead of the whole conversation."""
    tools, said, sent, before = [{"type": "function", **ADD}], [], list(ASKED), None
    for response in responses:
        given, request = player.respond(
            response, input=sent, tools=tools, instructions=SYSTEM, previous_response_id=before
        )
        said.append(request)
        calls = [item for item in given.output if item.type == "function_call"]
        sent = [
            {"type": "function_call_output", "call_id": c.call_id, "output": "3"} for c in calls
        ]
        before = given.id
    return said


def in_messages(player, responses):
    tool = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
    said, messages = [], list(ASKED)
    for response in responses:
        given, request = player.message(response, messages=messages, tools=[tool], system=SYSTEM)
        said.append(request)
        uses = [block for block in given.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": "3"} for b in uses]
        messages = [*messages, {"role": "assistant", "content": given.content}]
        messages += [{"role": "user", "content": results}] if results else []
    return said


def test_one_conversation_has_the_same_prompts_in_each_api():
    responses = [f"<think>\nhm\n</think>\n\nWell.\n{CALL}\n{CALL}", CALL, "3"]
    first, *others = [], in_chat, in_responses, in_stored_responses, in_messages
    for play in others:
        player = Player()
        prompts = [(request.messages, request.template) for request in play(player, responses)]
        player.close()
        first = first or prompts
        assert prompts == first, play.__name__
    messages, template = first[2]
    arguments = {"a": 1, "b": 2}
    calls = [
        {"id": name, "type": "function", "function": {"name": "add", "arguments": arguments}}
        for name in ("call00100", "call00101", "call00200")
    ]
    assert messages == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "1 + 2?"},
        {"role": "assistant", "content": "Well.", "reasoning_content": "hm",
         "tool_calls": calls[:2]},
        {"role": "tool", "tool_call_id": "call00100", "content": "3"},
        {"role": "tool", "tool_call_id": "call00101", "content": "3"},
        {"role": "assistant", "content": "", "tool_calls": calls[2:]},
        {"role": "tool", "tool_call_id": "call00200", "content": "3"},
    ]  # fmt: skip
    assert template == {"tools": [{"type": "function", "function": ADD}]}


# ---- Responses ----------------------------------------------------------------------------------


def test_a_response(player):
    given, request = player.respond(
        "Hi.", temperature=0.5, max_output_tokens=7, metadata={"a": "b"}
    )
    assert given.output_text == "Hi." and given.status == "completed"
    assert (given.usage.output_tokens, given.usage.total_tokens) == (5, 5)
    assert given.metadata == {"a": "b"} and given.temperature == 0.5
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.5, 7)
    # the SDK's own classes accept the answer
    openai.types.responses.Response.model_validate(given.model_dump(by_alias=True))
    cut, _ = player.respond(ResponseText("Hi", truncated=True))
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_streamed_response_has_the_same_content(player):
    tools, whole = [{"type": "function", **ADD}], f"<think>hm</think>Well.\n{CALL}"
    given, _ = player.respond(whole, tools=tools)

    def streamed(**options):
        with player.openai.responses.stream(**options) as stream:
            kinds = [event.type for event in stream]
            return kinds, stream.get_final_response()

    (kinds, same), _ = player.answer(whole, streamed, model="policy", input="hi", tools=tools)
    # the ids, which have the number of the turn, differ
    plain, parts = [[item.model_dump(exclude={"id", "call_id", "parsed_arguments"}) for item in o]
                    for o in (given.output, same.output)]  # fmt: skip
    assert [item["type"] for item in plain] == ["reasoning", "message", "function_call"]
    assert parts[0] == plain[0] and parts[2] == plain[2] and same.output_text == "Well."
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert {"response.reasoning_text.delta", "response.output_text.delta",
            "response.function_call_arguments.done"} <= set(kinds)  # fmt: skip
    assert kinds[-1] == "response.completed"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tools": [{"type": "web_search"}]}, "'web_search' is OpenAI's own"),
        ({"background": True}, "background cannot be served"),
        ({"conversation": "conv_1"}, "previous_response_id goes on with one"),
        ({"previous_response_id": "resp_x"}, "this episode has no response 'resp_x'"),
        ({"truncation": "auto"}, "no message is dropped here"),
        ({"top_p": 0.5}, "top_p cuts the distribution off"),
        ({"tool_choice": "required"}, "tool_choice forces a tool"),
        ({"include": ["message.output_text.logprobs"]}, "logprobs is not given"),
        ({"text": {"format": {"type": "json_object"}}}, "response_format allows only some tokens"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "'item_reference' cannot be read"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "only text can be read, not input_image",
        ),
    ],
)
def test_what_a_response_cannot_be(options, reason, player):
    with pytest.raises(openai.BadRequestError, match=reason):
        player.openai.responses.create(**{"model": "policy", "input": "hi"} | options)
    assert player.session.events.empty()


def test_a_schema_and_a_forced_function_of_a_response():
    text = {"format": {"type": "json_schema", "name": "sum", "schema": SCHEMA}}
    choice = {"type": "function", "name": "add"}
    body = {"input": "hi", "text": text, "tools": [{"type": "function", **ADD}]}
    request = RESPONSES.parse(body | {"tool_choice": choice}, "untrained", {})
    assert request.sampling.extra["response_format"] == SCHEMA
    [allowed] = request.sampling.extra["tool_choice"]["anyOf"]
    assert allowed["properties"] == {"name": {"const": "add"}, "arguments": SCHEMA}


def test_a_response_that_is_not_stored_cannot_be_continued():
    player = Player()
    given, _ = player.respond("Hi.", store=False)
    with pytest.raises(openai.BadRequestError, match="this episode has no response"):
        player.openai.responses.create(model="policy", input="?", previous_response_id=given.id)
    player.close()


# ---- Messages -----------------------------------------------------------------------------------


def test_a_message(player):
    given, request = player.message(
        "Hi.", extra_body={"temperature": 0.5}, system=[{"type": "text", "text": "Be."}]
    )
    assert [block.text for block in given.content] == ["Hi."]
    assert (given.stop_reason, given.usage.output_tokens) == ("end_turn", 5)
    assert request.messages[0] == {"role": "system", "content": "Be."}
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.5, 9)
    anthropic.types.Message.model_validate(given.model_dump())
    tool = {"name": "add", "input_schema": SCHEMA}
    once = {"type": "auto", "disable_parallel_tool_use": True}
    given, _ = player.message(f"{CALL}{CALL}", tools=[tool], tool_choice=once)
    [use] = given.content
    assert (given.stop_reason, use.input) == ("tool_use", {"a": 1, "b": 2})


def test_why_a_message_ends(player):
    cut, _ = player.message(ResponseText("Hi", truncated=True))
    assert cut.stop_reason == "max_tokens"
    # ";" comes first in the response
    stopped, _ = player.message("one; two.", stop_sequences=[".", ";"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", ";")
    assert stopped.content[0].text == "one"


def test_a_streamed_message_has_the_same_content(player):
    whole = f"<think>hm</think>Well.\n{CALL}"
    options = dict(model="policy", max_tokens=9, messages=ASKED)
    options["tools"] = [{"name": "add", "input_schema": SCHEMA}]

    def streamed(**options):
        with player.anthropic.messages.stream(**options) as stream:
            return stream.get_final_message()

    same, _ = player.answer(whole, streamed, **options)
    thought, text, use = same.content
    assert (thought.thinking, text.text, use.input) == ("hm", "Well.", {"a": 1, "b": 2})
    assert (same.stop_reason, same.usage.output_tokens) == ("tool_use", 5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "'bash_20250124' is Anthropic's"),
        ({"extra_body": {"top_k": 5}}, "top_k cuts the distribution off"),
        ({"tool_choice": {"type": "any"}}, "tool_choice forces a tool"),
        (
            {"messages": [*ASKED, {"role": "assistant", "content": "It"}]},
            "policy begins its",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "not image"),
    ],
)
def test_what_a_message_cannot_be(options, reason, player):
    with pytest.raises(anthropic.BadRequestError, match=reason):
        player.anthropic.messages.create(
            **{"model": "policy", "max_tokens": 9, "messages": ASKED} | options
        )
    assert player.session.events.empty()


def test_thoughts_that_are_hidden_and_choices_of_a_message():
    blocks = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "3"}]
    said = [*ASKED, {"role": "assistant", "content": blocks}, {"role": "user", "content": "Sure?"}]
    config = {"format": {"type": "json_schema", "schema": SCHEMA}}
    body = {"messages": said, "output_config": config, "tool_choice": {"type": "none"}}
    request = MESSAGES.parse(body, "untrained", {})
    assert request.messages[1] == {"role": "assistant", "content": "3"}
    assert request.sampling.extra == {"response_format": SCHEMA}
    with pytest.raises(Refused, match="mcp_servers cannot be served"):
        MESSAGES.parse(body | {"mcp_servers": [{}]}, "run", {})
    with pytest.raises(Refused, match="n is no field of this request"):
        MESSAGES.parse(body | {"n": 2}, "untrained", {})


# ---- what they share ----------------------------------------------------------------------------


def test_counting_tokens_makes_no_turn_and_knows_no_limit(model_dir):
    player = Player(tokens=TokenCounter(model_dir, {}, prompt_limit=5))
    # the template of the tests: "user: ", the text, a line break, and "assistant: "
    tokens = 6 + len("1 + 2?") + 1 + 11
    counted = player.anthropic.messages.count_tokens(model="policy", messages=ASKED)
    assert counted.input_tokens == tokens
    counted = player.openai.responses.input_tokens.count(model="policy", input="1 + 2?")
    assert counted.input_tokens == tokens and player.session.events.empty()
    with pytest.raises(anthropic.BadRequestError, match="--prompt-limit is 5"):
        player.anthropic.messages.create(model="policy", messages=ASKED, max_tokens=5)
    player.close()


def test_both_sdks_list_the_model_and_name_what_exists(player):
    for client in (player.openai, player.anthropic):
        assert [model.id for model in client.models.list()] == ["policy"]
        assert client.models.retrieve("policy").id == "policy"
    with pytest.raises(openai.NotFoundError, match="no POST /v1/embeddings, only .*messages"):
        player.openai.embeddings.create(model="policy", input="hi")
    with pytest.raises(anthropic.NotFoundError, match="'claude' is not served here"):
        player.anthropic.messages.create(model="claude", messages=ASKED, max_tokens=5)


def test_events_are_written_for_clients_without_an_sdk():
    player = Player()
    _, request = player.respond("Hi.")
    player.close()
    message = parse_response(request, "Hi.")
    given = RESPONSES.answer(request, "Hi.", message, 3, 5)
    events = [event.decode() for event in RESPONSES.events(request, given)]
    numbers = [json.loads(event.split("data: ")[1])["sequence_number"] for event in events]
    assert numbers == list(range(len(events)))
    given = MESSAGES.answer(request, "Hi.", message, 3, 5)
    kinds = [event.decode().split("\n")[0] for event in MESSAGES.events(request, given)]
    assert kinds == ["event: message_start", "event: content_block_start",
                     "event: content_block_delta", "event: content_block_stop",
                     "event: message_delta", "event: message_stop"]  # fmt: skip
