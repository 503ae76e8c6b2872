"""The groups of failed episodes: from records that were made up, and from a small evaluation."""

import json

import pytest

import main as trainer
from recipes import TINY
from reports import viewer
from reports.failures import group_failures, main, shares
from reports.final_states import final_lines, tasks_of, varying
from run.dialogue_log import episodes_of, read_log

THINGS = ["red key", "blue ball", "green box", "grey key", "red ball", "blue box"]


def turn(env, episode, step, observation, action="go", task="", **changes) -> dict:
    """A record as run.turns writes it; `task` is part of the prompt."""
    prompt = f"system: your goal is to {task}. You can go.\nuser: {observation}\nassistant:"
    record = dict(update=episode, env=env, episode=episode, seed=9, step=step, prompt=prompt)
    record |= dict(observation=observation, response="ACTION: go", action_at=0, action=action)
    record |= dict(valid=True, reward=0.0, terminated=False, truncated=False, success=False)
    record |= dict(fault="", response_truncated=False, prompt_overflow=False, tokens=["x"])
    return record | dict(logps=[0.0], values=[0.0], advantages=[0.0], kl=[0.0]) | changes


def errand(env, number, holds, **end) -> list[dict]:
    """An episode of two turns. Its task names two of THINGS, and it carries the first or second."""
    first, second = THINGS[number % 6], THINGS[(number + 1) % 6]
    task = f"pick up the {first}, then go to the {second}"
    held = f"You carry a {(first, second)[holds]}\n" if holds is not None else ""
    seen = f"a wall 3 steps left\na {first} 2 steps right and {number} steps forward"
    end = end or dict(truncated=True)
    return [
        turn(env, number, 1, seen, "turn", task),
        turn(env, number, 2, held + seen, "drop", task, **end),
    ]


# Environment 0: three hold the second thing at the time limit, one nothing, one succeeds.
# Environment 1: one fails with a fault, one goes on.
LOG = sum([errand(0, n, 1) for n in range(3)], [])
LOG += errand(0, 3, None) + errand(0, 4, 0, terminated=True, success=True)
LOG += errand(1, 5, 1, truncated=True, fault="boom") + errand(1, 6, 1)[:1]


@pytest.fixture
def run(tmp_path):
    text = "".join(json.dumps(record) + "\n" for record in LOG)
    (tmp_path / "trajectories.jsonl").write_text(text)
    return tmp_path


def test_episodes_that_ended_alike_are_one_group(run):
    episodes = episodes_of(read_log(run))[:-1]  # without the one that goes on
    groups = group_failures(episodes)
    task = "[1], then go to the [2]"  # all begin with the same words, which say nothing
    # the wall's line has a number and names nothing of the task
    holding, free = ("You carry a [2]", "a [1] ..."), ("a [1] ...",)
    sizes = {state: [(e.env, e.number) for e in found] for state, found in groups.items()}
    assert sizes == {
        ("time limit", task, holding): [(0, 0), (0, 1), (0, 2)],
        ("time limit", task, free): [(0, 3)],
        ("fault", task, holding): [(1, 5)],
    }


def test_the_table_begins_with_the_largest_group(run, capsys):
    assert main([str(run), "--most", "2"]) == 0
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if line.startswith("| ")]
    assert out.startswith("5 of 6 logged episodes failed.") and len(rows) == 3
    assert rows[1].startswith("| 3 | 0.60 | time limit | [1], then go to the [2] | You")
    assert rows[1].endswith("| You carry a [2]; a [1] ... | turn 0.500, drop 0.500 | "
                            "--env 0 --episode 2 |")  # fmt: skip
    assert "1 more in 1 other groups" in out
    assert f"python -m reports.viewer {run} --env 0 --episode 2" in out
    assert viewer.main([str(run), "--env", "0", "--episode", "2"]) == 0


def test_without_a_task_all_lines_count():
    assert final_lines("You face grass.\n\n- cow 3 steps\n- cow 12 steps", []) == (
        "You face grass.", "- cow ...",
    )  # fmt: skip


def test_without_a_task_the_lines_without_numbers_name_the_things():
    # the door is hidden, ball and key are in sight; the wall's and the other thing's lines are left
    seen = [
        "door is win\nkey 2 steps up\nwall 1 step down",
        "ball is win\nball 2 steps up\nwall 4 steps down",
        "key is win\nball 3 steps down\nkey 1 step up",
    ]
    log = [turn(0, n, 1, text, truncated=True) for n, text in enumerate(seen)]
    groups = group_failures(episodes_of(log))
    assert {state[1:]: [e.number for e in found] for state, found in groups.items()} == {
        ("", ("[1] is win",)): [0],
        ("", ("[1] is win", "[1] ...")): [1, 2],
    }


def test_words_that_vary():
    # of three words, the second has three variants and the third two; lines of two words are apart
    lines = ["the red key", "the blue ball", "the grey key", "a key"]
    found = varying([line.split() for line in lines])
    assert found == [[False, True, False]] * 3 + [[False, False]]


def test_one_episode_alone_has_no_task():
    [episode] = episodes_of(errand(0, 0, 1))
    assert tasks_of([episode]) == [("", [])]


def test_tools_that_were_called_count_as_actions():
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("add", "add", "find")]
    turns = [turn(0, 0, 1, "", reply={"tool_calls": calls}), turn(0, 0, 2, "", "idle")]
    assert shares(turns, 2) == "add 0.500, find 0.250"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "none is not a directory; RUN must be the --run-dir of a training run\n"),
        (
            [".", "--evaluation"],
            "has no eval_trajectories.jsonl; RUN must be the --run-dir of a run",
        ),
        (["."], "no finished episode in the log of . (--log-envs logs more)\n"),
    ],
)
def test_mistakes(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trajectories.jsonl").write_text(json.dumps(LOG[-1]) + "\n")
    assert main(words) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_reports_read_the_turns_of_an_eval_only_run(tmp_path, capsys):
    prompts = tmp_path / "own.toml"
    prompts.write_text("[toy]\nsystem = 'Of {actions}: say one.'")
    words = f"--env-name toy --eval-only --eval-episodes 4 --n-env 2 --log-envs 1 --model {TINY} "
    words += f"--run-dir {tmp_path / 'run'} --prompts {prompts} --response-limit 2"
    assert trainer.program([*words.split(), "--engine", "transformers"]) == 0
    capsys.readouterr()
    turns = read_log(tmp_path / "run", evaluation=True)
    assert {turn["env"] for turn in turns} == {0}
    assert all("Of pass, red, green, blue: say one." in turn["prompt"] for turn in turns)
    assert main([str(tmp_path / "run"), "--evaluation"]) == 0
    out = capsys.readouterr().out
    ended = sum(turn["terminated"] for turn in turns)
    assert f"{ended} of {ended} logged episodes failed." in out and "pass 1.000" in out
    assert viewer.main([str(tmp_path / "run"), "--evaluation"]) == 0
    assert (tmp_path / "run" / "eval_trajectories.html").is_file()
