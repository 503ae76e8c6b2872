"""A turn taken apart: reasoning, words and calls of a response, and what answered it."""

import pytest

from reports.exchange import LoggedMessage, call_text, messages_of, parts_of

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def turn(text: str, action_at: int | None = None, tokens=None, prompt="user: go", **more) -> dict:
    """A response of one token per character, with an end token."""
    at = len(text) if action_at is None else action_at
    record = dict(prompt=prompt, response=text, action_at=at, tokens=tokens or [*text, "<end>"])
    return record | dict(valid=True, action="", fault="") | more


def reply(*calls: tuple[str, dict], words="") -> dict:
    named = [{"function": {"name": name, "arguments": given}} for name, given in calls]
    message = {"role": "assistant", "content": words}
    return message | ({"tool_calls": named} if named else {})


def tool(text: str, **more) -> dict:
    return {"role": "tool", "content": text} | more


def labelled(record: dict) -> dict[str, str]:
    return {part.label: part.text for part in parts_of(record)}


# ---- parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["<think>", ""])
def test_a_response_splits_into_reasoning_text_and_call(opened):
    thought, words = f"{opened}one and\none</think>\n\n", "I add.\n"
    text = thought + words + CALL
    parts = labelled(turn(text, len(thought + words), reply=reply(("add", {"a": 1}))))
    assert parts == {"REASONING": thought, "SAYS": words, "CALL": CALL}


@pytest.mark.parametrize("at", [27, 18, 0])
def test_a_message_without_a_call(at):
    """Its action may begin at its words; an older one's is nowhere, at the end."""
    text = "<think>hm</think>\nIt is 42."
    assert labelled(turn(text, at, reply=reply())) == (
        {"REASONING": "<think>hm</think>\n", "SAYS": "It is 42."} if at else {"SAYS": text}
    )
    [part] = parts_of(turn("\n42", 1, reply=reply()))
    assert (part.label, part.first, part.end) == ("SAYS", 0, 4)


def test_without_messages_it_is_think_and_action():
    text = "<think>hm</think>THINK: a\nACTION: b"
    assert labelled(turn(text, 26)) == {
        "REASONING": "<think>hm</think>", "THINK": "THINK: a\n", "ACTION": "ACTION: b",
    }  # fmt: skip
    assert labelled(turn("THINK: a\nACTION: b", 9)) == {
        "THINK": "THINK: a\n",
        "ACTION": "ACTION: b",
    }
    assert labelled(turn("b", reply=None)) == {"THINK": "b"}


@pytest.mark.parametrize(
    ("text", "prompt"), [("<think>hm, b", "go"), ("hm, b", "assistant:\n<think>\n")]
)
def test_a_thought_that_was_cut_is_all_reasoning(text, prompt):
    assert labelled(turn(text, prompt=prompt, reply=reply())) == {"REASONING": text}
    assert labelled(turn(text, prompt="a <think> of it", reply=reply())) == (
        {"REASONING": text} if "<think>" in text else {"SAYS": text}
    )


def test_a_thought_ends_before_the_action():
    # what looks like the end of a thought stands in the call's text
    text = CALL.replace("1", '"</think>"')
    assert labelled(turn(text, 0, reply=reply(("add", {})))) == {"CALL": text}


def test_tokens_of_the_parts():
    tokens = ["<think>", "hm", "</th", "ink>\n", "\n", "I ", "go.", "<tool_call>", "{}", "<end>"]
    text = "".join(tokens[:-1])
    parts = parts_of(turn(text, text.index("<tool"), tokens, reply=reply(("go", {}))))
    spans = [(part.label, part.first, part.end) for part in parts]
    assert spans == [("REASONING", 0, 5), ("SAYS", 5, 7), ("CALL", 7, 10)]
    # nothing but the end was sampled; a first token without text is no reasoning
    assert [p.label for p in parts_of(turn("", tokens=["<end>"], reply=reply()))] == ["SAYS"]
    [part] = parts_of(turn("ü", tokens=["", "ü", "<end>"]))
    assert (part.label, part.first, part.end) == ("THINK", 0, 3)


# ---- messages -----------------------------------------------------------------------------------


def test_every_call_is_followed_by_its_result():
    answer = reply(("add", {"a": 1}), ("look_up", {"item": "ü"}))
    record = turn(CALL, 0, reply=answer, followed=[tool("1"), tool("Error: no such item")])
    assert messages_of(record) == [
        LoggedMessage("call", "add", "add(a=1)"),
        LoggedMessage("result", "add", "1"),
        LoggedMessage("call", "look_up", 'look_up(item="ü")'),
        LoggedMessage("result", "look_up", "Error: no such item", failed=True),
    ]


def test_results_that_cannot_be_paired_come_after_the_calls():
    answer = reply(("add", {}), ("sub", {}))
    record = turn(CALL, 0, reply=answer, followed=[tool("3", name="sub")])
    calls = [("call", "add"), ("call", "sub")]
    assert [(m.kind, m.name) for m in messages_of(record)] == [*calls, ("result", "sub")]
    record["followed"] = [tool("3"), tool("4"), tool("5")]
    assert [(m.kind, m.name) for m in messages_of(record)] == calls + 3 * [("result", "tool")]


def test_users_and_unreadable_messages():
    user = {"role": "user", "content": "Error-free, and now?"}
    [message] = messages_of(turn("hello", reply=reply(words="hello"), followed=[user]))
    assert message == LoggedMessage("user", "", "Error-free, and now?")
    error = {"role": "user", "content": "Error: the call is not valid JSON"}
    [message] = messages_of(turn("<tool_call>", valid=False, reply=reply(), followed=[error]))
    assert message == LoggedMessage("error", "", error["content"], failed=True)


def test_a_log_from_before_messages_has_none():
    record = turn("THINK: a\nACTION: b", 9)
    assert not record.keys() & {"reply", "followed"} and messages_of(record) == []


def test_how_a_call_is_written():
    def write(**arguments):
        return call_text(dict(name="f", arguments=arguments))

    assert write() == "f()"
    assert write(a=1, b="x", c=None, d=[1, {"e": True}]) == (
        'f(a=1, b="x", c=null, d=[1, {"e": true}])'
    )
    assert write(a="x" * 80) == 'f(\n  a="' + "x" * 80 + '",\n)'
    assert write(code="a = 1\nprint(a)") == 'f(\n  code="""\na = 1\nprint(a)\n""",\n)'
    assert call_text(dict(name="f", arguments="not a dict")) == "f(not a dict)"
