"""The zero-shot check: its figures by hand, every kind of failure once, odd texts."""

import json
import random
from dataclasses import replace

import pytest
from conftest import make_prompt, make_response

from envs.text_env import Observation, Step
from ppo.engines.contract import Response
from ppo.evaluation import EvaluationEpisodes
from reports.zero_shot import (
    SAMPLE,
    check_figures,
    diversity,
    write_check,
)
from reports.zero_shot_transcript import FAILURE_KINDS, Transcript, reasoning_of

MARKER, INVALID, CUT, OVERFLOW, REPEATED, LIMIT, LOST, FAULT = FAILURE_KINDS


def response(text="THINK: go. ACTION: up", truncated=False, overflow=False, pieces=None):
    pieces = pieces or list(text)
    ids = list(range(len(pieces)))
    return Response(
        make_prompt([1], overflow=overflow), ids, [0.0] * len(ids), text, pieces, truncated
    )


def step(action="up", sees="a wall", text="THINK: go. ACTION: up", **more):
    at = text.find("ACTION") if "ACTION" in text else len(text)

    def sight(words):
        return Observation(words, words, "", "")

    ends = more.get("terminated") or more.get("truncated")
    defaults = dict(
        response=text, kept_response=text, action=action, valid=True, action_at=at, reward=0.0,
        terminated=False, truncated=False, success=False, observation=sight(sees),
        first=sight("a new room") if ends else None,
    )  # fmt: skip
    return Step(**defaults | more)


def counted(*turns) -> dict[str, int]:
    """Kind -> how often, of the turns (response, step) of one environment."""
    transcript = Transcript()
    for answer, did in turns:
        transcript.add(0, answer, did)
    failures = check_figures(transcript)["failures"]
    return {kind: row["count"] for kind, row in failures.items() if row["count"]}


# ---- kinds of failure ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "kinds"),
    [
        ((response(), step()), set()),
        ((response(), step(terminated=True, success=True)), set()),
        ((response(), step(valid=False)), {INVALID}),
        ((response("up"), step(text="up")), {MARKER}),  # the whole text was the action
        ((response("THI", True), step(text="THI", valid=False)), {MARKER, INVALID, CUT}),
        ((response(overflow=True), step()), {OVERFLOW}),
        ((response(), step(terminated=True)), {LOST}),
        ((response(), step(truncated=True)), {LIMIT}),
        ((response(), step(truncated=True, success=True, terminated=True)), set()),
        ((response(), step(truncated=True, fault="it died")), {FAULT}),
    ],
)
def test_kinds_of_failures(turn, kinds):
    assert counted(turn) == dict.fromkeys(kinds, 1)


def test_repetition_by_hand():
    # in a row: up up up up in front of a wall: the third and the fourth count
    walls = [(response(), step())] * 4
    assert counted(*walls) == {REPEATED: 2}
    # another sight or action begins anew, and so does another episode
    assert counted(*walls[:2], (response(), step(sees="a door")), *walls[:2]) == {}
    assert counted(*walls[:2], (response(), step("left")), *walls[:2]) == {}
    ended = (response(), step(terminated=True, success=True))
    assert counted(walls[0], ended, *walls[:2]) == {}
    # environments are told apart
    transcript = Transcript()
    for n in (0, 1, 0, 1):
        transcript.add(n, *walls[0])
    assert check_figures(transcript)["failures"][REPEATED]["count"] == 0


def test_examples_show_the_observation_before_the_response():
    transcript = Transcript()
    transcript.add(0, response(), step(valid=False, seed=7, number=1))  # seen before: not known
    transcript.add(0, response("second"), step(valid=False, sees="a key", seed=7, number=2))
    transcript.add(0, response("third"), step(valid=False, seed=7, number=3))
    example = check_figures(transcript)["failures"][INVALID]["example"]
    assert (example["observation"], example["response"], example["turn"]) == ("a wall", "second", 2)
    assert check_figures(transcript)["failures"][LOST]["example"] is None


def test_after_an_episode_the_first_observation_of_the_next_one_counts():
    transcript = Transcript()
    transcript.add(0, response(), step(terminated=True, success=True))
    transcript.add(0, response(), step(valid=False))
    assert transcript.examples[INVALID]["observation"] == "a new room"
    transcript.add(0, response(), step(truncated=True, first=None))  # the panel's last episode


# ---- tools and users ----------------------------------------------------------------------------


def message(text: str, *names: str, **more):
    """(response, step) of a chat message that calls the tools of these names."""
    calls = [{"function": {"name": name, "arguments": {"a": 1}}} for name in names]
    reply = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
    did = dict(action="[...]", text=text, reply=reply)
    did["action_at"] = text.index("<tool_call>") if calls else len(text)
    return response(text), step(**did | more)


def test_calls_are_counted_by_tool_and_no_marker_is_missed(tmp_path):
    transcript = Transcript()
    call = "<think>I add</think> now <tool_call>"
    transcript.add(0, *message(call, "add", sees="1"))
    transcript.add(0, *message(call, "add", "look", sees="2"))
    transcript.add(0, *message("<tool_call>{", valid=False, sees="3"))
    transcript.add(0, *message("42", terminated=True, success=True))
    transcript.add(0, response(""), step(fault="it died", action="", truncated=True, text=""))
    figures = check_figures(transcript)
    # five turns: add was called in two of them, the fault did nothing
    assert figures["actions"] == {
        "add": 0.4, "look": 0.2,
        "message that could not be parsed": 0.2, "message without a call": 0.2,
    }  # fmt: skip
    assert MARKER not in figures["failures"] and figures["failures"][INVALID]["count"] == 1
    assert transcript.thoughts[:2] == ["I add now"] * 2
    summary = write_check(tmp_path, transcript, "tools")
    assert "- tool calls per turn: `add` 0.400, `look` 0.200" in summary
    assert "- valid messages: 0.800 of the turns" in summary and "ACTION" not in summary


def test_an_example_shows_the_calls_in_plain_words():
    transcript = Transcript()
    transcript.add(0, *message("<tool_call>", "add", "look", terminated=True))
    example = check_figures(transcript)["failures"][LOST]["example"]
    assert example["executed"] == "add(a=1)\nlook(a=1)"


# ---- figures ------------------------------------------------------------------------------------


def test_shares_and_lengths_by_hand():
    transcript = Transcript()
    for length in range(1, 21):  # thoughts of 1 to 20 tokens
        text = "x" * length + "ACTION: up"
        action = "up" if length <= 15 else "left"
        transcript.add(0, response(text), step(action, str(length), text, valid=length > 5))
    figures = check_figures(transcript)
    assert (figures["turns"], figures["episodes"]) == (20, 0)
    assert figures["valid_action"] == 0.75
    # mean 10.5; nearest rank: of 20 numbers the 19th has 95 % at or below it
    assert (figures["thought_tokens_mean"], figures["thought_tokens_p95"]) == (10.5, 19)
    assert figures["actions"] == {"up": 0.75, "left": 0.25}
    assert figures["failures"][INVALID]["share"] == 0.25
    assert figures["failures"][LIMIT]["share"] == 0  # of no episodes


def test_the_token_in_which_the_marker_begins_is_no_thought():
    # "go" " up" ".AC" "TION: up" "": the marker begins inside of the third
    text = "go up.ACTION: up"
    answer = response(text, pieces=["go", " up", ".AC", "TION: up", "<end>"])
    transcript = Transcript()
    transcript.add(0, answer, step(text=text))
    assert transcript.lengths == [2] and transcript.thoughts == ["go up."]


def test_diversity_by_hand():
    thoughts = ["Go to the ball.", "go to the key", "go to the  ball"]
    figures = diversity(thoughts)
    assert figures["different"] == pytest.approx(2 / 3)
    # nine pairs of neighbours; (go to), (to the), (the ball), (the key) are different
    assert figures["distinct_2"] == pytest.approx(4 / 9)
    # of five words in two thoughts three are shared; the first and the third are alike
    assert figures["self_similarity"] == pytest.approx((0.6 + 1 + 0.6) / 3)
    assert diversity(["up"]) == {"different": 1.0, "distinct_2": None, "self_similarity": None}
    assert diversity(["", ""])["self_similarity"] == 0


def test_diversity_is_that_of_a_sample():
    words = [f"word{k} word{k + 1}" for k in range(2 * SAMPLE)]
    assert diversity(words) == diversity(words)
    assert diversity(words * 2)["different"] > 0.5  # of all of them it would be a half
    random.Random(1).shuffle(words)
    assert diversity(words)["different"] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("THINK: the key\nis  near. ", "the key is near."),
        ("**Think:** left", "left"),
        ("I think so", "I think so"),
        ("", ""),
    ],
)
def test_thought(text, expected):
    assert reasoning_of(text + "ACTION: up", len(text)) == expected


# ---- files --------------------------------------------------------------------------------------


def test_no_text_is_markup_and_strange_texts_are_written(tmp_path):
    text = "# no title\n```\n| a \udcff | <b>" + "long " * 10**4
    transcript = Transcript()
    did = step("free | text\n" * 9, text=text, valid=False)
    for _ in range(2):
        transcript.add(0, response(text, pieces=[text]), did)
    summary = write_check(tmp_path, transcript, "toy")
    assert summary.splitlines()[-1] == f"examples: {tmp_path / 'zero_shot.md'}"
    page = (tmp_path / "zero_shot.md").read_text(errors="replace")
    assert "    # no title\n    ```\n    | a ⟨U+DCFF⟩ | <b>long" in page and len(page) < 4000
    assert "- executed actions: `free | text free | text" in page
    assert [line for line in page.splitlines() if line.startswith("#")] == [
        "# Zero-shot check", f"## {MARKER}", f"## {INVALID}",
    ]  # fmt: skip


def test_an_evaluation_in_which_the_policy_was_asked_for_nothing(tmp_path):
    summary = write_check(tmp_path, Transcript(), "greedy")
    assert summary.splitlines()[0] == "greedy: 0 episodes, no turn of the policy's"
    assert json.loads((tmp_path / "zero_shot.json").read_text())["turns"] == 0


def test_without_a_transcript_only_the_last_turn_is_kept():
    evaluation = EvaluationEpisodes(1)
    for text in ("x" * 99, ""):
        evaluation.keep_response(0, replace(make_response([1], [2]), text=text))
        evaluation.insert(0, step())
    [(turn,)] = evaluation.turns
    assert turn.response.text == "" and not evaluation.played
