"""Evaluations compared episode by episode: by hand, coverage, and what the programs show."""

import json

import numpy as np
import pytest
from made_runs import EVALUATION, write_run

from reports import curves, evaluations
from reports.pairs import pairs_table, share_change
from reports.run_files import read_runs


def write_outcomes(run, *lines):
    """Write eval_episodes.jsonl. lines: (update, successes); an episode pays its success"""
    records = [
        {"update": update, "success": won, "return": [float(w) for w in won]}
        for update, won in lines
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (run / "eval_episodes.jsonl").write_text(text)
    return run


def test_the_change_of_a_share_by_hand():
    # 10 pairs, 4 only after, 1 only before: 4.5 and 1.5 of 12, a centre of .25. The variance is
    # (6 / 12 - .0625) / 12 = .03646, 1.96 x .1909 = .3742
    assert share_change(4, 1, 10) == pytest.approx((0.3, 0.25 - 0.3742, 0.25 + 0.3742), abs=1e-3)
    # no pair differs: (1 / 12 - 0) / 12, 1.96 x .0833; two separate shares of .5 have .43
    assert share_change(0, 0, 10) == pytest.approx((0.0, -0.1633, 0.1633), abs=1e-3)


@pytest.mark.parametrize("ease", [0.5, 0.9, 0.98])
def test_the_interval_of_pairs_covers_the_truth_in_95_percent(ease):
    """Episodes are easy or hard for both policies; the second wins .04 of them that the first does
    not, and loses .02."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(1500):
        gained, lost, _ = rng.multinomial(256, [0.04 * (2 - ease), 0.02, 0.98 - 0.04 * (2 - ease)])
        _, low, high = share_change(int(gained), int(lost), 256)
        hits += low <= 0.04 * (2 - ease) - 0.02 <= high
    assert 0.93 < hits / 1500 < 0.975


def test_a_run_is_compared_with_itself_and_two_runs_with_each_other(tmp_path):
    one = write_outcomes(write_run(tmp_path / "a"), (0, [0, 1, 0, 1]), (9, [1, 1, 1, 1]))
    other = write_outcomes(write_run(tmp_path / "b"), (9, [1, 0]))
    [head, own, both] = pairs_table(read_runs([one, other], []))
    assert head[0] == "" and own[0] == "a: 9 updates after 0"
    # differences of returns 1, 0, 1, 0: mean .5, standard error (1 / 3)^.5 / 2;
    # 3 degrees of freedom: 3.182 x .2887 = .919
    assert own[2:] == ["2", "0", "+0.500 [-0.419, +1.419]", "4"]
    assert own[1].startswith("+0.500 [")
    # episode k is the same in both runs, so the first two are compared: 1, 1 and 1, 0
    assert both[0] == "b (after) and a (before)" and both[2:4] == ["0", "1"] and both[-1] == "2"
    foreign = write_outcomes(write_run(tmp_path / "c", env_name="babyai-goto"), (9, [1, 0]))
    assert len(pairs_table(read_runs([other, foreign], []))) == 1  # other episodes: no pairs


def test_evaluations_that_somebody_asked_for_are_no_pairs(tmp_path):
    run = write_outcomes(write_run(tmp_path / "a"), (0, [0, 1]))
    with (run / "eval_episodes.jsonl").open("a") as log:
        log.write('{"update": 0, "asked": true, "success": [1, 1], "return": [1, 1]}\n{"upd')
    assert len(pairs_table(read_runs([run], []))) == 1


def test_the_programs_show_the_pairs(tmp_path, capsys):
    runs = [
        write_outcomes(write_run(tmp_path / name, evals=[EVALUATION], lr=lr), (9, won))
        for name, lr, won in (("a", 1e-3, [0, 1, 0]), ("b", 2e-3, [1, 1, 0]))
    ]
    assert evaluations.main([str(run) for run in runs]) == 0
    assert "| b (after) and a (before) | +0.333 [" in capsys.readouterr().out
    assert curves.main([*map(str, runs), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<td>b (after) and a (before)</td><td>+0.333 [" in page and "Agresti and Min" in page
