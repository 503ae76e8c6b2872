"""Where the parts of a response begin."""

import pytest

from common.parts import marker, part_starts
from envs.actions import split


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("THINK: a\nACTION: b", {"ACTION": 9}),
        ("THINK: a\nNOTES: n\nACTION: b", {"NOTES": 9, "ACTION": 18}),
        ("NOTES: n\nACTION: b", {"NOTES": 0, "ACTION": 9}),
        ("ACTION: b\nNOTES: n", {"ACTION": 0}),
        ("THINK: a\nNOTES: n", {"NOTES": 9, "ACTION": 17}),  # cut before its action
        ("<think>NOTES: n</think>ACTION: b", {"ACTION": 23}),
        ("b", {"ACTION": 1}),
    ],
)
def test_of_a_turn_with_an_action(text, starts):
    assert part_starts(text, split(text)) == starts


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("THINK: a\nSUMMARY: s", {"SUMMARY": 9}),
        ("SUMMARY: s", {"SUMMARY": 0}),
        ("s", {"ACTION": 1}),
    ],
)
def test_of_a_turn_with_a_summary(text, starts):
    assert part_starts(text, marker(text, "SUMMARY")[0]) == starts


def test_a_summary_that_is_only_mentioned_is_none():
    text = "THINK: SUMMARY: s\nACTION: b"
    assert part_starts(text, split(text)) == {"ACTION": 18}
