"""Tables of evaluations: what a row says, Crafter's score by hand, several runs, odd files."""

import json

import pytest
from made_runs import EVALUATION, write_run

from reports.evaluations import main, markdown_table, with_score, write_eval_table

FULL = EVALUATION | {
    "eval/episodes": 16,
    "eval/episode_len": 12.5,
    "eval/valid_action": 0.98765,
    "eval/temperature": 0.5,
}


def test_the_score_by_hand():
    # unlocked in 0 and in 50 % of the episodes: exp((ln 1 + ln 51) / 2) - 1 = 51^.5 - 1
    record = {"eval/achievement/eat": 0.0, "eval/achievement/sleep": 0.5, "eval/achievements": 0.5}
    assert with_score(record) == record | {"score": pytest.approx(51**0.5 - 1)}
    # in all of them: 101 - 1;  in none: 0
    assert with_score({"eval/achievement/eat": 1.0})["score"] == pytest.approx(100)
    assert with_score({"eval/achievement/eat": 0.0})["score"] == 0
    assert with_score({"eval/achievements": 3.0}) == {"eval/achievements": 3.0}


def test_eval_md_has_a_row_for_every_evaluation(tmp_path):
    run = write_run(tmp_path / "run", evals=[FULL, FULL | {"update": 30}])
    write_eval_table(run)
    table = (run / "eval.md").read_text().splitlines()
    assert table[2:6] == [
        "| environment | updates | episodes | success | return | length | valid actions "
        "| temperature |",
        "|---|---|---|---|---|---|---|---|",
        "| toy | 0 | 16 | 0.250 [0.100, 0.500] | 0.200 +- 0.050 | 12.5 | 0.988 | 0.5 |",
        "| toy | 30 | 16 | 0.250 [0.100, 0.500] | 0.200 +- 0.050 | 12.5 | 0.988 | 0.5 |",
    ]


def test_achievements_have_a_table_of_their_own(tmp_path, capsys):
    unlocked = {"eval/achievements": 1.5, "eval/achievement/eat": 1.0, "eval/achievement/nap": 0.5}
    crafter = write_run(tmp_path / "c", evals=[FULL | unlocked], env_name="crafter")
    other = write_run(tmp_path / "b", evals=[FULL], env_name="a|b")
    assert main([str(crafter), str(other)]) == 0
    output = capsys.readouterr().out
    # (101 x 51)^.5 - 1 = 70.77
    assert "| c | crafter | 0 | 16 |" in output and "| 1.50 | 70.77 | 0.5 |" in output
    assert "| b | a\\|b | 0 | 16 |" in output and "| - | - | 0.5 |" in output
    assert "| achievement: share of episodes | after 0 updates, 16 episodes |" in output
    assert "| eat | 1.000 |" in output and "| nap | 0.500 |" in output


def test_faults_are_shown_where_there_were_any(tmp_path):
    whole, hurt = FULL | {"eval/env_faults": 0}, FULL | {"eval/env_faults": 3, "update": 2}
    for name, evals, shown in (("a", [whole], False), ("b", [whole, hurt, FULL], True)):
        run = write_run(tmp_path / name, evals=evals)
        write_eval_table(run)
        text = (run / "eval.md").read_text()
        assert ("faults" in text) == ("counts as a failure" in text) == shown
    rows = [line.split(" | ")[3] for line in text.splitlines() if line.startswith("| toy")]
    assert rows == ["0", "3", "-"]


def test_a_directory_without_a_run_is_one_line_and_code_2(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("reports.evaluations: error: no evaluations: ")
    write_eval_table(tmp_path)
    assert not (tmp_path / "eval.md").exists()


def test_an_evaluation_of_an_older_run_has_dashes(tmp_path):
    old = {k: v for k, v in FULL.items() if k != "eval/temperature"}
    run = write_run(tmp_path / "run", evals=[old, FULL])
    (run / "eval.jsonl").open("a").write(json.dumps(FULL)[:40])  # torn
    write_eval_table(run)
    rows = [line for line in (run / "eval.md").read_text().splitlines() if "| toy" in line]
    assert [row.split(" | ")[-1] for row in rows] == ["- |", "0.5 |"]


def test_markdown_table():
    assert markdown_table([["a", "b"], ["1", "x|y"]]) == "| a | b |\n|---|---|\n| 1 | x\\|y |"
