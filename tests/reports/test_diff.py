"""The page about two runs: what differs, and the same episodes side by side."""

import json

import pytest
from made_runs import write_run

from reports import diff
from run.dialogue_log import LoggedEpisode


def turn(step: int, action: str, seed: int = 7, **more) -> dict:
    fields = dict(
        update=0, env=0, episode=seed, seed=seed, step=step, action_at=0, prompt="", fault="",
        response=f"<b>{action}", action=action, tokens=[], valid=True, terminated=False,
        truncated=False, success=False, response_truncated=False, prompt_overflow=False,
        reward=0, logps=[], values=[], advantages=[], kl=[], observation=f"you see {step}",
    )  # fmt: skip
    return fields | more


def episode(actions: str) -> LoggedEpisode:
    return LoggedEpisode(0, 0, [turn(k, action) for k, action in enumerate(actions, start=1)])


@pytest.mark.parametrize(
    ("one", "other", "at"), [("abc", "abd", 3), ("ab", "abc", 3), ("abc", "a", 2), ("a", "a", None)]
)
def test_the_turn_from_which_two_episodes_differ(one, other, at):
    assert diff.first_difference(episode(one), episode(other)) == at


def test_the_page_has_what_differs_and_the_shared_episodes(tmp_path, capsys):
    one = write_run(tmp_path / "one", lr=0.1)
    other = write_run(tmp_path / "other", lr=0.2)
    described = json.loads((other / "args.json").read_text()) | {"versions": {"torch": "2.9"}}
    (other / "args.json").write_text(json.dumps(described))
    for run, last in ((one, "left"), (other, "right")):
        turns = [turn(1, "go"), turn(2, last, terminated=True, success=last == "right")]
        turns.append(turn(1, "go", seed=len(last)))  # an episode that only this run has
        lines = "".join(f"{json.dumps(each)}\n" for each in turns)
        (run / "eval_trajectories.jsonl").write_text(lines)
    out = tmp_path / "page.html"
    assert diff.main([str(one), str(other), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    page = out.read_text()
    assert "<td>lr</td><td>0.1</td><td>0.2</td>" in page and "<td>n_env</td>" not in page
    assert "<td>torch</td><td>-</td><td>2.9</td>" in page
    line = "seed 7: failure after 2 turns, success after 2; the actions differ from turn 2 on"
    assert line in page and page.count("<summary>seed") == 1
    # the turn that is the same is folded, and the table begins with the difference
    assert "<summary>the same actions up to turn 1</summary>" in page
    assert page.index("&lt;b&gt;go") < page.index("</details>") < page.index("&lt;b&gt;left")
    assert "&lt;b&gt;left" in page and "<b>left</b>" in page


def test_mistakes_are_one_line(tmp_path, capsys):
    run = str(write_run(tmp_path / "run"))
    (tmp_path / "run" / "metrics.jsonl").unlink()  # which a note says
    for other, line in ((run, "are the same directory"), ("nowhere", "it has no valid args.json")):
        assert diff.main([run, other, "--out", str(tmp_path / "page.html")]) == 2
        error = capsys.readouterr().err
        assert line in error and error.count("\n") == 1
