"""tools-calculator: its questions can be worked out with its tool, and only a right answer pays."""

import json

import pytest

from envs import family, make_env
from envs.text_env import act, begin
from envs.tools.calculator import RANGE, WORDS, Calculator, compute


def call(a, operation, b) -> str:
    arguments = {"a": a, "operation": operation, "b": b}
    written = json.dumps({"name": "calculate", "arguments": arguments})
    return f"I call it.\n<tool_call>\n{written}\n</tool_call>"


@pytest.fixture
def env():
    """Start with 17.  Step 1: add 25.  Step 2: multiply by 2.  The answer is 84."""
    env = Calculator()
    begin(env, 0)
    env.start, env.chain, env.answer = 17, [("add", 25), ("multiply", 2)], 84
    return env


def test_it_is_made_by_its_whole_name():
    assert isinstance(make_env("tools-calculator", max_episode_steps=5), Calculator)
    assert family("tools-calculator") == "calculator"
    with pytest.raises(ValueError, match="tools-calculator"):
        make_env("tools-calculater")


def test_an_episode_written_out(env):
    step = act(env, call(17, "add", 25))
    (result,) = step.observation.messages
    assert (result["role"], result["content"]) == ("tool", '{"result": 42}')
    assert (step.reward, step.done, step.valid) == (0.0, False, True)
    step = act(env, call(42, "multiply", 2))
    assert step.observation.messages[0]["content"] == '{"result": 84}'
    step = act(env, "All steps are done.\nANSWER: 84")
    assert (step.reward, step.terminated, step.success) == (1.0, True, True)


@pytest.mark.parametrize(
    "answer", ["ANSWER: 83", "ANSWER: 184", "84", "?", "ANSWER: " + "8" * 9999]
)
def test_a_wrong_answer_ends_the_episode_and_pays_nothing(env, answer):
    step = act(env, answer)
    assert (step.reward, step.terminated, step.success) == (0.0, True, False)


@pytest.mark.parametrize("arguments", [(17, "subtract", 25), (99, "add", 1), (17, "divide", 25)])
def test_the_model_reads_errors_of_the_calculator_and_the_episode_goes_on(env, arguments):
    step = act(env, call(*arguments))
    assert step.observation.messages[0]["role"] == "tool"
    assert step.observation.messages[0]["content"].startswith("Error: ")
    assert not step.done


def test_every_question_says_its_steps_and_stays_in_range():
    env, lengths = Calculator(), set()
    for seed in range(200):
        lines = begin(env, seed).text.split("\n")
        value = int(lines[0].removeprefix("Start with ").removesuffix("."))
        assert len(lines) == len(env.chain) + 1
        for k, (line, (operation, number)) in enumerate(zip(lines[1:], env.chain, strict=True), 1):
            assert line == f"Step {k}: {WORDS[operation]} {number}."
            value = compute(value, operation, number)
            assert value in RANGE and number in RANGE
        assert value == env.answer
        lengths.add(len(env.chain))
    assert lengths == {2, 3, 4}


def test_the_seed_makes_the_question():
    texts = [begin(Calculator(), seed).text for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


def test_the_tool_describes_itself():
    (tool,) = Calculator().template["tools"]
    parameters = tool["function"]["parameters"]
    assert parameters["properties"]["operation"]["enum"] == list(WORDS)
    assert parameters["required"] == ["a", "operation", "b"]
