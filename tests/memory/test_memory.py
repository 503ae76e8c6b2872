"""Memories: the prompts of n = 0, 1, 2 and of each variant, written out in full."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest
from gymnasium.spaces import Text

import memory
from common.chat import Sampling
from envs.text_env import Observation, Step, act, begin
from memory.window import WindowMemory

SYSTEM, OPENING = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Buy."}
LOOK = {"type": "function", "function": {"name": "look", "arguments": {}}}
TURNS = [  # of an agent that looks, asks the user, and looks again
    [{"role": "assistant", "content": "<think>a</think>I look.", "tool_calls": [LOOK]},
     {"role": "tool", "content": "tea"}],
    [{"role": "assistant", "content": "<think>b</think>Tea?"}, {"role": "user", "content": "No."}],
    [{"role": "assistant", "content": "", "tool_calls": [LOOK, LOOK]},
     {"role": "tool", "content": "tea"}, {"role": "tool", "content": "ink"}],
]  # fmt: skip
CALLED, ASKED = TURNS[0][0], TURNS[1][0]
ACTIONS = [
    [CALLED | {"content": ""}, TURNS[0][1]],
    [ASKED | {"content": "Tea?"}, TURNS[1][1]],
    TURNS[2],
]
RECORDED = Path(__file__).parents[1] / "data" / "prompts.jsonl.gz"


def observation(t: int) -> Observation:
    return Observation(f"now {t}", f"kept {t}", f"system {t}", "Answer!")


def step(t: int) -> Step:
    """Turn t: the agent sees observation t and acts, and observation t + 1 follows."""
    return Step(
        response=f"raw {t}",
        kept_response=f"THINK: {t}\nACTION: go",
        action="go",
        valid=True,
        action_at=9,
        reward=0.0,
        terminated=t == 9,
        truncated=False,
        success=False,
        observation=observation(t + 1),
    )


def after(name: str, length: int, turns: int) -> list[dict]:
    remembered = memory.make(name, length)
    remembered.reset(observation(0))
    for t in range(turns):
        remembered.update(step(t))
    return remembered.messages()


@pytest.mark.parametrize(
    ("name", "length", "shown"),
    [
        # what answered the last call is the current observation, and n turns stand before it
        ("window", 0, TURNS[2:]),
        ("window", 1, TURNS[1:]),
        ("full", 0, TURNS),
        ("action", 1, ACTIONS[1:]),
        ("action", 2, ACTIONS),
        ("periodic", 3, TURNS),
        ("periodic", 2, TURNS[2:]),
    ],
)
def test_turns_with_tools_and_a_user(name, length, shown):
    remembered = memory.make(name, length)
    remembered.reset(Observation("Buy.", "Buy.", "Be brief.", "", (OPENING,)))
    for reply, *answers in TURNS:
        now = Observation("now", "now", "Be brief.", "", tuple(answers))
        remembered.update(replace(step(0), reply=reply, observation=now))
    assert remembered.messages() == [SYSTEM, OPENING, *(m for turn in shown for m in turn)]


def test_first_turn_is_the_same_in_all_with_a_window():
    for name in memory.MEMORIES.keys() - {"verbatim", "full", "summary"}:
        assert after(name, 1, turns=0) == [
            {"role": "system", "content": "system 0"},
            {"role": "user", "content": "Current Observation:\nnow 0\n\nAnswer!"},
        ]


def test_window_0():
    assert after("window", 0, turns=3) == [
        {"role": "system", "content": "system 3"},
        {"role": "user", "content": "Current Observation:\nnow 3\n\nAnswer!"},
    ]


def test_window_1():
    assert after("window", 1, turns=3) == [
        {"role": "system", "content": "system 3"},
        {"role": "user", "content": "Observation:\nkept 2"},
        {"role": "assistant", "content": "THINK: 2\nACTION: go"},
        {"role": "user", "content": "Current Observation:\nnow 3\n\nAnswer!"},
    ]


def test_window_2():
    assert after("window", 2, turns=3) == [
        {"role": "system", "content": "system 3"},
        {"role": "user", "content": "Observation:\nkept 1"},
        {"role": "assistant", "content": "THINK: 1\nACTION: go"},
        {"role": "user", "content": "Observation:\nkept 2"},
        {"role": "assistant", "content": "THINK: 2\nACTION: go"},
        {"role": "user", "content": "Current Observation:\nnow 3\n\nAnswer!"},
    ]


def test_window_is_not_full_at_the_start_and_empty_after_reset():
    assert len(after("window", 2, turns=1)) == 4
    window = memory.make("window", 2)
    window.reset(observation(0))
    window.update(step(0))
    window.reset(observation(5))
    assert window.messages() == [
        {"role": "system", "content": "system 5"},
        {"role": "user", "content": "Current Observation:\nnow 5\n\nAnswer!"},
    ]


def test_final_observation_is_shown_after_the_last_turn():
    messages = after("window", 1, turns=10)  # turn 9 ends the episode
    assert messages[-1]["content"] == "Current Observation:\nnow 10\n\nAnswer!"


@pytest.mark.parametrize(
    "name", ["window", "action", "periodic", "full", "notes", "summary", "verbatim"]
)
@pytest.mark.parametrize("messages", [(), ({"role": "user", "content": "hi"},)])
def test_a_fault_leaves_the_memory_as_it_is(name, messages):
    """The environment has shown nothing new: what the policy saw last is what V is asked of."""
    mem = memory.make(name, 2)
    mem.reset(replace(step(0).observation, messages=messages))
    played = step(1)
    mem.update(replace(played, observation=replace(played.observation, messages=messages)))
    before = list(mem.messages())
    mem.update(replace(step(2), fault="lost", truncated=True))
    assert list(mem.messages()) == before


def test_window_forgets():
    window = memory.make("window", 1)
    window.reset(observation(0))
    for t in range(1000):
        window.update(step(t))
    assert len(window.turns) == 1


def test_action():
    assert after("action", 2, turns=3) == [
        {"role": "system", "content": "system 3"},
        {"role": "user", "content": "Observation:\nkept 1"},
        {"role": "assistant", "content": "ACTION: go"},
        {"role": "user", "content": "Observation:\nkept 2"},
        {"role": "assistant", "content": "ACTION: go"},
        {"role": "user", "content": "Current Observation:\nnow 3\n\nAnswer!"},
    ]


def test_periodic():
    # cleared every 3 turns: the prompts of turns 0, 1, 2, ... show 0, 1, 2, 0, 1, 2, 0 old turns
    shown = [(len(after("periodic", 3, turns)) - 2) // 2 for turns in range(7)]
    assert shown == [0, 1, 2, 0, 1, 2, 0]
    assert after("periodic", 3, turns=5) == [
        {"role": "system", "content": "system 5"},
        {"role": "user", "content": "Observation:\nkept 3"},
        {"role": "assistant", "content": "THINK: 3\nACTION: go"},
        {"role": "user", "content": "Observation:\nkept 4"},
        {"role": "assistant", "content": "THINK: 4\nACTION: go"},
        {"role": "user", "content": "Current Observation:\nnow 5\n\nAnswer!"},
    ]


def test_full():
    assert after("full", 0, turns=2) == [
        {"role": "system", "content": "system 2\n\nAnswer!"},
        {"role": "user", "content": "Current Observation:\nnow 0"},
        {"role": "assistant", "content": "THINK: 0\nACTION: go"},
        {"role": "user", "content": "Current Observation:\nnow 1"},
        {"role": "assistant", "content": "THINK: 1\nACTION: go"},
        {"role": "user", "content": "Current Observation:\nnow 2"},
    ]


def test_full_only_appends():
    prompts = [after("full", 0, turns)[1:] for turns in range(6)]
    for shorter, longer in zip(prompts[:-1], prompts[1:], strict=True):
        assert longer[: len(shorter)] == shorter and len(longer) == len(shorter) + 2


def test_full_without_a_system_message_or_an_instruction():
    remembered = memory.make("full", 0)
    remembered.reset(Observation("now", "kept", "", ""))
    assert remembered.messages() == [{"role": "user", "content": "Current Observation:\nnow"}]


def records() -> list[dict]:
    with gzip.open(RECORDED, "rt") as lines:
        return [r for r in map(json.loads, lines) if r["captioner"] == "cot"]


@pytest.mark.parametrize("n", [0, 1, 2, 4])
def test_recorded_prompts(n):
    """Roles, order, system and user messages are the recorded ones; assistants may differ."""
    chosen = [r for r in records() if r["max_text_history"] == n]
    assert chosen
    for record in chosen:
        check_recorded(record, memory.make("window", n))


def check_recorded(record: dict, window) -> None:
    for t, event in enumerate(record["events"]):
        if event["type"] == "action":
            action = event
            continue
        now = recorded_observation(event)
        if t == 0:
            window.reset(now)
        else:
            window.update(recorded_step(action, now))
        ours, theirs = window.messages(), event["messages"]
        assert [m["role"] for m in ours] == [m["role"] for m in theirs]
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other or mine["role"] == "assistant"
        if len(ours) > 2:
            assert ours[-2]["content"] == action["history_text"]


def recorded_observation(event: dict) -> Observation:
    kept, short = event["long_term_context"], event["short_term_context"]
    instruction = event["messages"][-1]["content"].split("\n\n")[-1]
    text = f"{short}\n{kept}" if short else kept
    return Observation(text, kept, event["system_prompt"], instruction)


def recorded_step(action: dict, now: Observation) -> Step:
    response = action["history_text"]
    return Step(response, response, action["executed"], True, 0, 0.0, False, False, False, now)


class Forgetful(WindowMemory):
    """A memory of the user's own."""


def test_own_class():
    assert memory.make(f"{__name__}:Forgetful", 3).inner.length == 3


class Brief(WindowMemory):
    """Shows the current observation, as a plain list."""

    def messages(self):
        return [{"role": "user", "content": self.observation.text}]


@pytest.mark.parametrize("name", ["Forgetful", "Brief"])
def test_the_sampling_options_of_an_observation_reach_the_chat(name):
    # above all, an answer that is no sample must be known as such
    remembered = memory.make(f"{__name__}:{name}", 3)
    asked = Sampling(0.5, extra={"top_p": 0.9})
    remembered.reset(replace(observation(0), sampling=asked))
    assert remembered.messages().sampling == asked
    remembered.update(replace(step(0), observation=replace(observation(1), sampling=asked)))
    assert remembered.messages().sampling == asked
    remembered.update(step(1))
    assert remembered.messages().sampling == Sampling()


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("window", -1, "memory length must be >= 0, got -1"),
        ("periodic", 0, "memory length must be >= 1 for a periodic memory, got 0"),
        (
            "windw",
            1,
            "unknown memory 'windw'; choices: window, action, periodic, full, notes, summary, ve",
        ),
        ("no_such_module:Memory", 1, "'no_such_module:Memory' cannot be imported .*; choices: win"),
        ("memory.window:Window", 1, "'memory.window' has no 'Window'; choices: window, acti"),
    ],
)
def test_mistakes(name, length, message):
    with pytest.raises(ValueError, match=message) as raised:
        memory.make(name, length)
    assert "\n" not in str(raised.value)


class OneMessage(gymnasium.Env):
    """Keeps one dict of its message and one of its reply, and changes them in place."""

    observation_space = action_space = Text(100)

    def reset(self, *, seed=None, options=None):
        self.turn, self.message, self.reply = 0, {"role": "user"}, {"role": "assistant"}
        return self.shown()

    def step(self, response):
        self.turn += 1
        text, info = self.shown()
        return text, 0.0, False, False, info

    def shown(self):
        self.message["content"] = f"turn {self.turn}"
        self.reply["content"] = f"answer {self.turn}"
        look = dict(system="", instruction="", kept="", messages=[self.message], reply=self.reply)
        turn = dict(kept_response="x", action="x", valid=True, action_at=0, success=False)
        return "text", look | turn


def test_an_environment_may_change_its_messages_in_place():
    # A worker's messages are copies, since they are pickled; in one process they must be, too.
    env, window = OneMessage(), WindowMemory(4)
    window.reset(begin(env, seed=1))
    for _ in range(2):
        window.update(act(env, "x"))
    expected = ["turn 0", "answer 1", "turn 1", "answer 2", "turn 2"]
    assert [message["content"] for message in window.messages()] == expected
