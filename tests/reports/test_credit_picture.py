"""The picture of an episode's credit: which turns it shows, and whose they are."""

import json

import pytest

from reports.credit import beginning, credited_turns, main
from run.dialogue_log import episodes_of, read_log


def turn(step: int, system: str, update=1, **changes) -> dict:
    """A record as run.turns writes it, of a response with two tokens."""
    prompt = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
    record = dict(update=update, env=0, episode=2, seed=9, step=step, prompt=prompt, reward=0.0)
    record |= dict(response="yes", action_at=0, action="yes", valid=True, fault="", success=False)
    record |= dict(terminated=False, truncated=False, response_truncated=False, prompt_overflow=0)
    record |= dict(tokens=["y", "es"], logps=[-1.0, -1.0], kl=[0.0, 0.0], prompt_overflow=False)
    return record | dict(values=[0.2, 0.4], advantages=[0.25, 0.75]) | changes


@pytest.fixture
def run(tmp_path):
    turns = [
        turn(1, "You hand over.", reward=1.0),
        turn(2, "You add.", values=[0.5, 0.1], advantages=[-1.0, None]),
        turn(3, "You hand over.", update=2, terminated=True, success=True),
    ]
    (tmp_path / "trajectories.jsonl").write_text("".join(json.dumps(t) + "\n" for t in turns))
    return tmp_path


def test_turns_have_their_agent_reward_value_and_mean_advantage(run):
    [episode] = episodes_of(read_log(run))
    first, second, third = credited_turns(episode)
    assert first.agent == third.agent == "You hand over. user hello" != second.agent
    assert (first.reward, first.value, first.advantage) == (1.0, 0.2, 0.5)
    assert (second.value, second.advantage) == (0.5, -1.0)
    assert [each.update for each in (first, second, third)] == [1, 1, 2]


def test_the_picture_is_written(run, capsys):
    assert main([str(run)]) == 0
    assert "environment 0, episode 2: success" in capsys.readouterr().out
    assert (run / "credit.png").read_bytes().startswith(b"\x89PNG")


def test_an_episode_that_is_not_there(run, capsys):
    assert main([str(run), "--episode", "1"]) == 2
    assert "no finished episode in the log" in capsys.readouterr().err


def test_the_marks_of_templates_are_no_words():
    assert beginning("<s>[INST] You add.[/INST]") == "You add."
    assert beginning("<|im_start|>system\nYou\nadd.<|im_end|>") == "You add."
