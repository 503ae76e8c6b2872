"""Records of runs: a page drawn from them is the page drawn from the runs."""

import json

import pytest
from made_runs import EVALUATION, write_run

from paper import records
from paper.quantities import final_evaluation
from paper.results import results_page
from paper.runs import read_run
from paper.tables import TABLES

METRICS = [
    {"update": k, "turns": 8 * k, "rollout/success": k / 3, "time/total": 2.0, "ppo/secret": 1.0}
    for k in (1, 2, 3)
]
BEFORE = EVALUATION | {"eval/episodes": 4}
EVALS = [BEFORE, BEFORE | {"update": 3, "eval/success": 2 / 3, "eval/episodes": 3}]


def act(action: str, tmp_path, runs: str = "runs") -> int:
    words = [action, "--runs", str(tmp_path / runs), "--records", str(tmp_path / "records")]
    return records.main(words)


def made(tmp_path, name: str, metrics=METRICS, evals=EVALS, **settings):
    return write_run(tmp_path / "runs" / name, metrics, evals, **settings)


def test_a_restored_run_is_finished_and_has_the_numbers_of_the_page(tmp_path):
    path = made(tmp_path, "embedded/table3/a-seed1", run_dir="/home/me/a-seed1")
    assert act("keep", tmp_path) == 0
    text = (tmp_path / "records" / "embedded" / "table3" / "runs.jsonl").read_text()
    assert "/home/me" not in text and "secret" not in text
    assert act("restore", tmp_path, "others") == 0
    restored = read_run(tmp_path / "others" / "embedded" / "table3" / "a-seed1")
    original = read_run(path)
    assert final_evaluation(restored)["eval/success"] == 0.666667  # six digits
    assert restored.curve("rollout/success") == {8: 0.333333, 16: 0.666667, 24: 1.0}
    assert (restored.seed, restored.commit) == (original.seed, original.commit)
    assert restored.minutes() == original.minutes()
    row = TABLES["table3"].rows[0]
    pages = [results_page(TABLES["table3"], "-", [(row, 1, run)]) for run in (original, restored)]
    assert pages[0] == pages[1]


def test_a_metric_that_begins_later_has_its_own_updates(tmp_path):
    made(tmp_path, "a-seed1", [METRICS[0] | {"rollout/success": None}, *METRICS[1:]])
    assert act("keep", tmp_path) == act("restore", tmp_path, "others") == 0
    restored = read_run(tmp_path / "others" / "a-seed1")
    assert list(restored.curve("rollout/success")) == [16, 24]


def test_only_finished_runs_are_kept_and_others_stay_in_the_file(tmp_path, capsys):
    made(tmp_path, "x/a-seed1")
    made(tmp_path, "x/b-seed1", METRICS[:2], EVALS[:1])
    assert act("keep", tmp_path) == 0
    (tmp_path / "runs" / "x" / "a-seed1").rename(tmp_path / "a-seed1")
    made(tmp_path, "x/c-seed1", seed=7)
    assert act("keep", tmp_path) == 0
    lines = (tmp_path / "records" / "x" / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a-seed1", "c-seed1"]


def test_an_evaluation_inside_a_run_is_not_a_run_of_its_own(tmp_path):
    made(tmp_path, "peer/a-seed1")
    made(tmp_path, "peer/a-seed1/evaluation", evals=EVALS[:1], eval_only=True)
    assert act("keep", tmp_path) == 0
    files = (tmp_path / "records").rglob("*.jsonl")
    assert [str(file.relative_to(tmp_path)) for file in files] == ["records/peer/runs.jsonl"]


def test_an_infinite_setting_is_kept_twice(tmp_path):
    path = made(tmp_path, "x/a-seed1", value_clip=float("inf"))
    assert act("keep", tmp_path) == act("restore", tmp_path, "others") == 0
    assert act("keep", tmp_path, "others") == act("restore", tmp_path, "again") == 0
    args = [json.loads((folder / "args.json").read_text())["args"]
            for folder in (path, tmp_path / "again" / "x" / "a-seed1")]  # fmt: skip
    assert args[0]["value_clip"] == args[1]["value_clip"] == float("inf")


def test_a_directory_with_a_dot_in_its_name_is_the_same_again(tmp_path):
    made(tmp_path, "v1.0/a-seed1")
    assert act("keep", tmp_path) == act("restore", tmp_path, "others") == 0
    assert final_evaluation(read_run(tmp_path / "others" / "v1.0" / "a-seed1"))


def test_what_is_there_already_is_not_touched(tmp_path, capsys):
    path = made(tmp_path, "x/a-seed1")
    assert act("keep", tmp_path) == 0
    before = {file: file.read_bytes() for file in path.iterdir()}
    assert act("restore", tmp_path) == 0
    assert "0 runs restored" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.parametrize(
    "action, line, message",
    [
        ("keep", None, "there is no finished run"),
        ("restore", None, "there are no records"),
        ("restore", "{", "line 1 is no record"),
        ("restore", "{}", "line 1 is no record"),
        ("restore", '{"name": 1, "args": {}, "git": "", "versions": {}}', "line 1 is no record"),
        ("restore", '{"name": "../a", "args": {}, "git": "", "versions": {}}', "line 1 is no"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(action, line, message, tmp_path, capsys):
    if line is not None:
        (tmp_path / "records").mkdir()
        (tmp_path / "records" / "runs.jsonl").write_text(line)
    assert act(action, tmp_path) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
