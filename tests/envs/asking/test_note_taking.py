"""--memory notes: what the agent is asked, what it sees of its notes, and what is counted."""

from functools import partial

import pytest
from small_envs import turn

import memory
from common.shorten import CUT
from envs.asking.notes import AsksForNotes
from envs.games.toy import Toy
from envs.text_env import THINK_ACT, begin
from envs.tools.calculator import Calculator
from envs.variants import EndsWhenInvalid, OwnPrompts
from memory.notes import NotesMemory


class Words:
    """Counts words, so that limits can be checked by hand."""

    def count(self, text: str) -> int:
        return len(text.split())


def playing(length: int = 1, env=None, limit: int = 6):
    """Return an environment that asks, and the run's memory at its first turn."""
    kind = type("Short", (NotesMemory,), {"limit": limit})
    env = AsksForNotes(env or Toy(), partial(kind, length), Words())
    remembered = memory.make_memory("notes", length, keep=True)
    remembered.reset(begin(env, 0))
    return env, remembered


def shown(remembered) -> str:
    """The notes in the prompt of the next turn."""
    content = remembered.messages()[-1]["content"]
    return content.split("Your notes:\n")[1].split("\n\n")[0]


def test_the_prompt_of_a_turn_in_full():
    env, remembered = playing()
    turn(env, remembered, "THINK: hm\nNOTES: a then b\nACTION: red")
    system, *others = remembered.messages()
    assert [message["content"] for message in others] == [
        "Observation:\nThe colour is blue.",
        "THINK: hm\nACTION: red",  # the notes stand below, in their newest form
        "Current Observation:\nThe colour is green.\n\nYour notes:\na then b\n\n"
        "What will you do next? Please respond in the following format:\n"
        "    THINK: step-by-step reasoning\n"
        "    NOTES: all that you must still know later; they replace your notes above\n"
        "    ACTION: One valid action from the allowed set.",
    ]
    assert system["content"] == env.unwrapped.system_prompt()


@pytest.mark.parametrize(
    ("response", "notes"),
    [
        ("THINK: hm\nNOTES: new\nACTION: red", "new"),
        ("THINK: hm NOTES: new ACTION: red", "new"),
        ("NOTES: a\nNOTES: two\nlines\nACTION: red", "two\nlines"),  # the last marker counts
        ("**Notes**: new\nACTION: red", "new"),
        ("NOTES:\nACTION: red", "(none)"),  # empty ones replace the old ones, too
        ("NOTES: new", "new"),  # no action: they are kept all the same
        ("THINK: my notes: x\nACTION: red", "old"),
        ("ACTION: red\nNOTES: too late", "old"),
        ("<think>NOTES: a thought</think>ACTION: red", "old"),
        ("ACTION: red", "old"),
        ("", "old"),
    ],
)
def test_which_notes_stay(response, notes):
    env, remembered = playing()
    turn(env, remembered, "NOTES: old\nACTION: red")
    turn(env, remembered, response)
    assert shown(remembered) == notes


def test_notes_above_the_limit_are_cut_with_a_mark():
    env, remembered = playing(limit=6)
    turn(env, remembered, "NOTES: 1 2 3 4 5 6\nACTION: red")
    assert shown(remembered) == "1 2 3 4 5 6"
    turn(env, remembered, "NOTES: 1 2 3 4 5 6 7\nACTION: red")
    assert CUT == " [cut]" and shown(remembered) == "1 2 3 4 5 [cut]"  # six words with the mark


def test_the_figures_of_an_episode():
    env, remembered = playing(limit=6)
    turn(env, remembered, "ACTION: red")  # no notes: 0 words
    turn(env, remembered, "NOTES: 1 2 3\nACTION: red")
    turn(env, remembered, "ACTION: red")
    last = turn(env, remembered, f"NOTES: {'w ' * 9}\nACTION: red")
    # 0, 3, 3 and 6 words in four turns, two of them without NOTES, one cut
    figures = {"notes_tokens": 3.0, "notes_missing": 0.5, "notes_cut": 0.25}
    assert last.done and {**last.metrics, "right": 0} == figures | {"right": 0}


def test_a_new_episode_has_no_notes():
    env, remembered = playing()
    turn(env, remembered, "NOTES: old\nACTION: red")
    remembered.reset(begin(env, 1))
    assert shown(remembered) == "(none)"


def test_an_invalid_action_is_replaced_and_its_notes_stay():
    env, remembered = playing()
    step = turn(env, remembered, "THINK: hm\nNOTES: n\nACTION: dance")
    assert not step.valid and step.kept_response == "THINK: hm\nACTION: pass"
    assert shown(remembered) == "n"


def test_it_goes_around_the_other_wrappers():
    own = OwnPrompts(EndsWhenInvalid(Toy()), {"instruction": "Say a colour."})
    env, remembered = playing(env=own)
    text = remembered.messages()[-1]["content"]
    assert THINK_ACT not in text and text.endswith(
        "Say a colour.\nBefore ACTION write a line NOTES: with all that you must still know later."
    )
    step = turn(env, remembered, "NOTES: n\nACTION: dance")
    assert step.done and step.metrics["notes_tokens"] == 1


def test_an_environment_that_reads_whole_messages_is_refused():
    with pytest.raises(ValueError, match="reads whole messages; take summary"):
        playing(env=Calculator())
