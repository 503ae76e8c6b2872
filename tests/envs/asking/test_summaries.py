"""--memory summary: when the agent is asked, what it then sees, and that merging goes on."""

from dataclasses import replace
from functools import partial

import pytest
from small_envs import turn
from transformers import AutoTokenizer

import memory
from envs.agents.tokens import TokenCounter
from envs.asking.summaries import AsksForSummaries
from envs.games.toy import Toy
from envs.text_env import begin
from envs.tools.calculator import Calculator
from memory.render import Renderer
from memory.summary import ASK
from recipes import TINY

SYSTEM = Toy().system_prompt()
HOW = Toy.instruction


def playing(length: int, env=None, prompt_limit: int = 10**6, tokenizer: str = ""):
    """Return an environment that asks, and the run's memory at its first turn."""
    make = partial(memory.make_memory, "summary", length, True)
    env = AsksForSummaries(env or Toy(turns=6), make, TokenCounter(tokenizer, {}, prompt_limit))
    remembered = make()
    remembered.reset(begin(env, 0))
    return env, remembered


def contents(remembered) -> list[str]:
    return [message["content"] for message in remembered.messages()]


def test_prompts_and_steps_in_full():
    env, remembered = playing(length=2)
    blue, green, *_ = (f"Current Observation:\nThe colour is {c}." for c in ("blue", "green"))
    assert contents(remembered) == [f"{SYSTEM}\n\n{HOW}", blue]
    turn(env, remembered, "ACTION: red")
    assert contents(remembered) == [f"{SYSTEM}\n\n{HOW}", blue, "ACTION: red", green]
    step = turn(env, remembered, "ACTION: pass")  # two turns: they are summed up first
    assert step.action == "pass" and step.observation.text.endswith(ASK)
    before = [f"{SYSTEM}\n\n{HOW}", blue, "ACTION: red", green, "ACTION: pass"]
    *history, asked = contents(remembered)
    assert history == before and asked == f"{green}\n\n{ASK}"  # green again: seed 0
    step = turn(env, remembered, "THINK: hm\nSUMMARY: two colours")
    assert (step.action, step.valid, step.reward, step.done) == ("(summary)", True, 0.0, False)
    known = "Your summary of the turns so far:\ntwo colours"
    assert contents(remembered) == [f"{SYSTEM}\n\n{known}\n\n{HOW}", green]
    turn(env, remembered, "ACTION: red")
    assert len(contents(remembered)) == 4 and known in contents(remembered)[0]


def test_a_summary_costs_no_turn_of_the_environment():
    env, remembered = playing(length=1)
    steps = []
    while not (steps and steps[-1].done):
        steps.append(turn(env, remembered, "SUMMARY: x y z\nACTION: pass"))
    # the six turns of the game, and a summary after each but the last
    assert [step.action for step in steps] == ["pass", "(summary)"] * 5 + ["pass"]
    assert steps[-1].metrics == {"right": 0.0, "summaries": 5.0, "summary_tokens": 0.0}


@pytest.mark.parametrize(
    ("response", "summary", "marked"),
    [
        ("THINK: a\nSUMMARY: b\nc", "b\nc", "SUMMARY: b\nc"),
        ("<think>SUMMARY: a</think>b", "b", ""),  # without a marker, all that is said
        ("a", "a", ""),
        ("SUMMARY: a SUMMARY: b", "b", "SUMMARY: b"),
        ("summary: b", "b", "summary: b"),
    ],
)
def test_which_text_is_the_summary(response, summary, marked):
    env, remembered = playing(length=1)
    turn(env, remembered, "ACTION: red")
    step = turn(env, remembered, response)
    assert f"so far:\n{summary}\n\n{HOW}" in contents(remembered)[0]
    assert response[step.action_at :] == marked


def test_a_summary_that_is_too_long_is_cut():
    env, remembered = playing(length=1, prompt_limit=400, tokenizer=str(TINY))
    turn(env, remembered, "ACTION: pass")
    turn(env, remembered, f"SUMMARY: {'word ' * 500}")
    assert env.summary.startswith("word word ") and env.summary.endswith(" [cut]")
    assert 190 < env.tokens.count(env.summary) <= 200
    prompt = Renderer(AutoTokenizer.from_pretrained(TINY), 400)(remembered.messages())
    assert len(prompt.ids) <= 400 and env.summary in contents(remembered)[0]


def test_an_empty_summary_shows_nothing():
    env, remembered = playing(length=1)
    turn(env, remembered, "ACTION: red")
    turn(env, remembered, "")
    assert contents(remembered)[0] == f"{SYSTEM}\n\n{HOW}"


def test_the_limit_of_the_prompt_asks_for_a_summary_in_time():
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    limit = 560
    render = Renderer(tokenizer, limit)
    env, remembered = playing(0, Toy(turns=40), limit, str(TINY))
    before, asked, sizes = [], 0, []
    step = None
    while not (step and step.done):
        prompt = render(remembered.messages(), before)
        sizes.append(len(prompt.ids))
        assert not prompt.overflow  # nothing is ever dropped
        summing = remembered.asked
        response = "SUMMARY: some" if summing else "THINK: a few words\nACTION: red"
        asked += summing
        step = turn(env, remembered, response)
    assert 2 <= asked <= 8 and max(sizes) > 0.7 * limit


def test_prompts_extend_one_another_between_two_summaries():
    render = Renderer(AutoTokenizer.from_pretrained(TINY), 10**6)
    env, remembered = playing(length=3, env=Toy(turns=7))
    before, extended, asked = "", [], []
    for _ in range(8):
        text = render.write(remembered.messages(), {})
        extended.append(bool(before) and text.startswith(before))
        asked.append(remembered.asked)
        response = "SUMMARY: s" if remembered.asked else "ACTION: red"
        turn(env, remembered, response)
        before = f"{text}{response}<|im_end|>"
    assert asked == [False] * 3 + [True] + [False] * 3 + [True]
    # the summary's own turn extends the one before; the turn after it begins anew
    assert extended == [False, True, True, True, False, True, True, True]


def test_turns_with_tools_are_summed_up_without_losing_the_last_result():
    env, remembered = playing(length=2, env=Calculator())
    question = remembered.messages()[-1]
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    turn(env, remembered, call)
    roles = [message["role"] for message in remembered.messages()]
    assert roles == ["system", "user", "assistant", "tool"]
    turn(env, remembered, call)
    *history, last = remembered.messages()
    assert [m["role"] for m in history] == [*roles, "assistant", "tool"] and last["content"] == ASK
    step = turn(env, remembered, "SUMMARY: 1 + 2 = 3")
    assert step.reply == {"role": "assistant", "content": "SUMMARY: 1 + 2 = 3"}
    system, *rest = remembered.messages()
    assert system["content"].endswith("Your summary of the turns so far:\n1 + 2 = 3")
    assert rest[0] == question and [m["role"] for m in rest[1:]] == ["assistant", "tool"]
    turn(env, remembered, call)
    assert [m["role"] for m in remembered.messages()] == [*roles, "assistant", "tool"]


def test_a_question_in_a_dialogue_stands_behind_the_users_words():
    env, _ = playing(length=1)
    env.speaks = True
    said = {"role": "user", "content": "Soup?"}
    assert env._asked("Soup?", {"messages": [said]})[1]["messages"] == [
        {"role": "user", "content": f"Soup?\n\n{ASK}"}
    ]
    assert said["content"] == "Soup?"  # the environment's own message is not changed


def test_a_fault_changes_nothing():
    env, remembered = playing(length=1)
    step = turn(env, remembered, "ACTION: red")
    before = contents(remembered)
    remembered.update(replace(step, fault="lost", truncated=True))
    assert contents(remembered) == before and remembered.asked
