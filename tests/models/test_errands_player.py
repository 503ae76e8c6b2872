"""A player of the errands that knows its prompt alone: what it reads, and what it writes badly."""

import numpy as np
import pytest

from memory.summary import ASK
from models.demonstrations import play_tasks
from models.players import errands
from models.players.errands import ERRAND, Player
from models.players.reading import left_of, written
from models.remembering import demonstrations, episode, remembering

TOLD, DONE = errands.TOLD, errands.THANKS
LIST = f"{TOLD}mill red, inn blue.\nYou will not be told."


def left(*contents: str, role: str = "user"):
    return left_of([{"role": role, "content": text} for text in contents], TOLD, ERRAND, DONE)


@pytest.mark.parametrize(
    ("prompt", "items"),
    [
        ([LIST], "mill red, inn blue"),
        ([LIST, "You are at the mill.", DONE], "inn blue"),
        (["You are at the mill."], "nothing"),
        ([f"{errands.SUMMARY}inn blue\n\nmill red", "x"], "inn blue"),
        ([f"{errands.SUMMARY}mill red, inn blue\n\n", DONE], "inn blue"),
        # what is summed up is what stands above: the observation will be shown again
        ([f"{errands.SUMMARY}mill red, inn blue\n\n", f"{DONE}\n\n{ASK}"], "mill red, inn blue"),
        ([LIST, f"{DONE}\n\n{errands.NOTES}inn blue\n\n"], "inn blue"),
        ([LIST, f"{errands.NOTES}(none)\n\n"], "nothing"),  # notes of its own replace the list
        ([f"{LIST}\n\n{errands.NOTES}(none)\n\n"], "mill red, inn blue"),
    ],
)
def test_what_it_reads(prompt, items):
    assert written(left(*prompt)).removeprefix("to do: ") == items


def test_it_does_not_read_its_thoughts():
    assert left("THINK: mill red", role="assistant") is None


@pytest.mark.parametrize(
    ("memory", "length", "succeeds"),
    [("notes", 0, True), ("notes", 1, True), ("summary", 8, True), ("full", 0, True),
     ("window", 1, False), ("window", 8, False), ("periodic", 8, False)],
)  # fmt: skip
def test_what_each_memory_lets_it_reach(memory, length, succeeds):
    player = Player("20", np.random.default_rng(0))
    env, remembered = remembering(player.env, memory, length)
    ends = [[step for _, _, step in episode(player, env, remembered, s)][-1] for s in range(20)]
    wins = sum(step.success for step in ends)
    assert wins == 20 if succeeds else wins <= 1


def test_its_notes_are_bad_as_often_as_it_is_told():
    given = dict(begins=0.5, keeps=0.9, stray=1.0)  # good notes are always executed
    player = Player("20", np.random.default_rng(0), **given)
    turns = demonstrations(player, 200, 0, [("notes", 0)])
    first = [TOLD in messages[-1]["content"] for messages, _ in turns]
    empty = ["NOTES: nothing" in response for _, response in turns]
    share = sum(e for e, f in zip(empty, first, strict=True) if f) / sum(first)
    assert sum(first) == 200 and 0.4 < share < 0.6
    good = [written(left_of(messages, TOLD, ERRAND, DONE)) for messages, _ in turns]
    walks = [(g, r) for g, f, (_, r) in zip(good, first, turns, strict=True)
             if not f and "ACTION: go" in r]  # fmt: skip
    kept = sum(f"NOTES: {g}\n" in r for g, r in walks) / len(walks)
    assert 0.87 < kept < 0.93


def test_its_lessons_have_all_memories():
    turns = play_tasks(errands, {"20": dict(episodes=12, begins=0.5)}, seed=1)
    texts = [messages[-1]["content"] for messages, _ in turns]
    assert any(text.endswith(ASK) for text in texts)
    assert any(errands.NOTES in text for text in texts)
    assert {len(messages) for messages, _ in turns} >= {2, 4, 18}  # 0, 1 and 8 turns of history
