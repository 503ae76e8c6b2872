"""The table of frameworks: its page has its results, and its player solves what a program asks."""

import json
from importlib import metadata

import pytest

from benchmarks import frameworks
from benchmarks.framework_player import Player, play
from benchmarks.frameworks import FRAMEWORKS, PAGE, RESULTS, ROOT, main, page_of, problem_of
from envs.agents.requests import request_of


def test_the_page_shows_the_results():
    results = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == page_of(results) and results.keys() <= FRAMEWORKS.keys()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_programs_exist(name):
    framework = FRAMEWORKS[name]
    text = (ROOT / "examples" / "frameworks" / f"{framework.module}.py").read_text()
    assert all(f"def {program}(" in text for program in framework.programs)


def test_a_check_prints_the_rows_that_are_not_on_the_page(monkeypatch, capsys):
    [row] = json.loads(RESULTS.read_text())["litellm"]
    rows = {"litellm": [["litellm 99.0", *row[1:]]], "dspy": [], "anthropic": [[*row[:-1], "no"]]}
    monkeypatch.setattr(frameworks, "rows_of", lambda name, framework: rows[name])
    before = RESULTS.read_text(), PAGE.read_text()
    assert main(["--check", "litellm", "dspy"]) == 0  # a newer version, and one not installed
    assert main(["--check", "litellm", "anthropic"]) == 1
    assert "docs/frameworks.md has another row than: litellm" in capsys.readouterr().out
    assert (RESULTS.read_text(), PAGE.read_text()) == before


def test_an_unknown_name_gets_one_line(capsys):
    assert main(["dsp"]) == 2
    assert "dsp: the frameworks are langchain, " in capsys.readouterr().err


def test_the_player_calls_two_tools_at_once_and_answers():
    request = request_of({
        "messages": [{"role": "user", "content": "?"}],
        "tools": [{"type": "function", "function": {"name": "sum", "parameters": {
            "type": "object", "properties": {"a": {}, "operation": {}, "b": {}}}}}],
    })  # fmt: skip
    player = Player()
    chain, start = player.task.chain, player.task.start
    text, results = player.respond(request)
    assert text.count('"name": "sum"') == 2 and len(results) == 2 and f'"a": {start}' in text
    while player.left:
        player.respond(request)
    assert len(chain) == 3 and player.respond(request) == (f"ANSWER: {player.task.answer}", [])


def lacks(packages) -> str:
    """Say how to get what is missing of these packages; "" if nothing is."""
    for package in packages:
        try:
            metadata.version(package.partition("[")[0])
        except metadata.PackageNotFoundError:
            wanted = " ".join(f"'{each}'" for each in packages)
            return f"{package} is not installed: pip install {wanted}"
    return ""


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_programs_of_an_installed_framework_come_to_the_right_result(name):
    framework = FRAMEWORKS[name]
    if lack := lacks(framework.packages):
        pytest.skip(lack)
    rows = json.loads(RESULTS.read_text()).get(name, [])
    paths = {row[1]: row[2] for row in rows}
    for program in framework.programs:
        path = f"{framework.module}:{program}"
        seen = play(f"agent:examples.frameworks.{path}")
        assert "error" not in seen and seen["tools"] in ("yes", "text")
        assert ", ".join(seen["paths"]) == paths.get(f"`{path}`", "chat/completions")


def test_a_program_that_cannot_be_played_says_why():
    seen = play("agent:agent_programs:early_crash")
    assert "KeyError('at once')" in seen["error"]


def test_a_run_with_a_fault_or_another_ratio_does_not_train(tmp_path):
    lines = [{"ppo/ratio_first_minibatch": ratio} for ratio in (1.0, 1.0)]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert problem_of(tmp_path) == ""
    (tmp_path / "faults.jsonl").write_text(json.dumps({"error": "it broke"}) + "\n")
    assert problem_of(tmp_path) == "it broke"
    (tmp_path / "faults.jsonl").unlink()
    path.write_text(json.dumps({"ppo/ratio_first_minibatch": 1.1}) + "\n")
    assert problem_of(tmp_path) == "the first probability ratios are [1.1]"
