"""Effects: the paper's numbers fit one another, differences by hand, and the three words."""

import math

import pytest
from made_runs import EVALUATION, write_run

from paper.claims import CLAIMS
from paper.effects import (
    Claim,
    Effect,
    claims_part,
    difference_of,
    effects_part,
    gain,
    verdict,
)
from paper.intervals import mean_error, share_difference
from paper.printed import LENGTHS, TRAINED_SUCCESS, ZERO_SHOT, ZERO_SHOT_MEAN, Printed, fifth_task
from paper.quantities import error_before, numbers
from paper.ranks import ranks_part
from paper.scenes import draw_scenes, mean_and_error
from paper.tables import CRAFTER_ROW, TABLES
from reports.run_files import read_runs

PUTNEXT = TABLES["table1"].rows[-1]


def made(path, success=0.9, before=None, **metrics):
    """A finished run of three updates; metrics: name -> one value for each of them"""
    first = [] if before is None else [EVALUATION | {"eval/success": before, "eval/episodes": 100}]
    evals = [*first, EVALUATION | {"update": 3, "eval/success": success, "eval/episodes": 100}]
    rows = [{"update": u, "turns": 8 * u} for u in (1, 2, 3)]
    for name, values in metrics.items():
        rows = [row | {name.replace("__", "/"): v} for row, v in zip(rows, values, strict=True)]
    return read_runs([write_run(path, rows, evals)], [])[0]


def test_the_papers_errors_are_those_of_32_episodes():
    for row in ZERO_SHOT.values():
        for number in row.values():
            p = number.value
            assert number.error == pytest.approx(math.sqrt(p * (1 - p) / 32), abs=0.003)
    assert [fifth_task(n) for n in LENGTHS] == [0, 0, 0, 1, 0, 0]
    # the first column of Table 1 is Table 3 before training
    for env, row in ZERO_SHOT.items():
        assert round(row[1].value, 2) == pytest.approx(TRAINED_SUCCESS[env][0].value, abs=0.005)
    assert str(ZERO_SHOT_MEAN[1]) == "0.3187 +- 0.0368"


def test_differences_of_printed_numbers():
    # (.06^2 + .08^2)^.5 = .1
    assert Printed(0.9, 0.06).above(Printed(0.4, 0.08)) == "+0.50 +- 0.10"
    assert Printed(10.44).above(Printed(5.80)) == "+4.64"


def test_the_error_of_one_evaluation(tmp_path):
    [run] = [made(tmp_path / "a", before=0.5)]
    run.evals[0] |= {"eval/episodes": 98, "eval/return": 3.0, "eval/return_stderr": 0.2}
    assert error_before([run], "eval/success") == pytest.approx(0.05)  # (.5 x .5 / 100)^.5
    assert error_before([run], "eval/return") == 0.2
    assert error_before([run], "eval/episode_len") == 0.0
    assert mean_error([0.3, 0.4]) == 0.25  # (.09 + .16)^.5 / 2


def test_differences_over_episodes_by_hand():
    # means .6 and .3; with one success and one failure more, p = 61 / 102, 71 / 102 ... :
    # one panel of 98 each: (.5 x 98 + 1) / 100 = .5, variance .25 / 100 = .0025 each
    mean, low, high = share_difference([(0.5, 98)], [(0.5, 98)])
    assert mean == 0 and high == -low == pytest.approx(1.959964 * math.sqrt(0.005))
    # two panels of a side halve its variance
    mean, low, high = share_difference([(0.5, 98), (0.5, 98)], [(0.5, 98)])
    assert high == pytest.approx(1.959964 * math.sqrt(0.00375))
    # no doubt-free share: none of 8 is 1 of 10 in the variance, .1 x .9 / 10
    assert share_difference([(0.0, 8)], [(0.0, 8)])[2] == pytest.approx(1.959964 * 0.018**0.5)


def test_three_verdicts():
    assert verdict(0.01, 0.3, 0.05) == "seen"
    assert verdict(-0.1, 0.04, 0.05) == "not seen"
    assert verdict(-0.1, 0.06, 0.05) == "not decided"
    assert verdict(-0.2, -0.1, 0.0) == "not seen" and verdict(-0.2, 0.0, 0.0) == "not decided"


def test_the_verdict_of_a_claim(tmp_path):
    levels = {"low": 0.1, "high": 0.9}
    found = {
        name: [made(tmp_path / f"{name}{k}", success, rollout__success=[1 - success] * 3)
               for k in range(2)]
        for name, success in levels.items()
    }  # fmt: skip

    def after(more, less):
        quantity = "after eval/success"
        return Effect("", ((more,), quantity), ((less,), quantity))

    def training(more, less):
        quantity = "mean rollout/success"
        return Effect("", ((more,), quantity), ((less,), quantity))

    seen, not_seen, unknown = after("high", "low"), after("low", "high"), after("high", "none")
    reversed_in_training = training("high", "low")

    def word(*tests, often=False):
        row = claims_part([Claim("it is so", list(tests), often)], found).split("\n")[2]
        return row.split("|")[3].strip()

    assert word([seen]) == word([seen, unknown]) == word([seen], [seen]) == "seen"
    assert word([not_seen]) == word([seen], [not_seen]) == "not seen"
    assert word([unknown]) == word([seen, reversed_in_training]) == "not decided"
    assert word([seen], [unknown]) == word([not_seen, unknown]) == "not decided"
    assert word([seen], [seen], [not_seen], often=True) == "seen"
    assert word([seen], [unknown], [not_seen], often=True) == "not decided"
    assert word([seen], [not_seen], [not_seen], often=True) == "not seen"


def test_quantities_of_runs(tmp_path):
    runs = [
        made(tmp_path / "a", 0.8, before=0.5, kl__ref=(1.0, 2.0, 6.0)),
        made(tmp_path / "b", 0.6, kl__ref=(0.0, 0.0, 3.0)),
    ]
    begun = read_runs([write_run(tmp_path / "c", [], [EVALUATION])], [])[0]

    def read(quantity):
        return numbers([*runs, begun], quantity)

    assert read("before eval/success") == [0.5] and read("after eval/success") == [0.8, 0.6]
    assert read("mean kl/ref") == read("last kl/ref") == [3.0, 1.0]
    assert read("last kl/none") == read("after eval/none") == []
    longer = [made(tmp_path / "d", kl__ref=(0.0, 1.0, 2.0))]
    longer[0].metrics = [{"turns": u, "kl/ref": float(u)} for u in range(20)]
    assert numbers(longer, "last kl/ref") == [14.5]  # the mean of 10 to 19


def test_an_effect_needs_two_seeds(tmp_path):
    effect = gain("goto", "goto", "eval/success")
    one = made(tmp_path / "a", 0.9, before=0.4)
    assert difference_of(effect, {}) is None
    assert difference_of(effect, {"goto": [one]}) is None
    two = {"goto": [one, made(tmp_path / "b", 0.9)]}
    # The seeds do not differ. Before: 40 of 100 episodes, 41 of 102 with one success and one
    # failure more: the standard error is (.402 x .598 / 102)^.5 = .0485; 1.96 of them are .095.
    mean, low, high = difference_of(effect, two)
    assert mean == 0.5 and (low, high) == pytest.approx((0.405, 0.595), abs=0.005)
    text = effects_part([effect], two)
    assert "| goto | +0.500 [+0.4" in text and "] | 2 and 1 | 0.05 | seen |" in text
    assert "| goto | 0 and 0 | 0.05 | not decided |" in effects_part([effect], {})
    # of two initial models the seeds do not matter
    zero = Effect("n", (("goto",), "before eval/success"), (("goto",), "before eval/success"))
    assert difference_of(zero, two)[0] == 0 and "over episodes" in effects_part([zero], two)


def test_two_numbers_of_the_same_runs_are_paired(tmp_path):
    runs = {
        "a": [
            made(tmp_path / str(k), kl__ref_action=[high] * 3, kl__ref_think=[low] * 3)
            for k, (high, low) in enumerate([(0.5, 0.4), (0.9, 0.7), (0.2, 0.2)])
        ]
    }
    effect = Effect("kl", (("a",), "last kl/ref_action"), (("a",), "last kl/ref_think"))
    # differences .1, .2 and 0: mean .1, standard error .1 / 3^.5, 2 degrees of freedom: 4.303
    half = 4.303 * 0.1 / math.sqrt(3)
    wanted = pytest.approx((0.1, 0.1 - half, 0.1 + half), abs=1e-4)
    assert difference_of(effect, runs) == wanted


def test_the_best_lengths(tmp_path):
    rows = TABLES["table1"].rows[:6]
    # of 100 episodes .9 against .5 is beyond doubt, .9 against .85 is not
    shares = [0.5, 0.9, 0.85, 0.5, 0.5, 0.0]
    found = [
        (row, [made(tmp_path / row.name, before=p)]) for row, p in zip(rows, shares, strict=True)
    ]
    text = ranks_part(found)
    assert "| babyai-goto | 0.500 | 0.900 | 0.850 | 0.500 | 0.500 | 0.000 | 1 | 2 | 4 |" in text
    assert "| mean | 0.500 | 0.900 |" in text
    assert ranks_part(found[:5]) == "" and "| mean" not in ranks_part([*found, (PUTNEXT, [])])


def test_every_effect_is_about_rows_of_its_page():
    for table in [*TABLES.values(), CLAIMS]:
        names = {row.name for row in table.rows}
        for effect in table.effects:
            assert {*effect.more[0], *effect.less[0]} <= names, effect.label
    # each row of Tables 2 and 3 has one
    for name in ("table2", "table3"):
        about = {effect.more[0][0] for effect in TABLES[name].effects}
        assert about == {row.name for row in TABLES[name].rows}


def test_curves_with_standard_errors():
    # at 8 turns .2 and .4: mean .3, deviation .02^.5 = .1414, error .1; at 16 there is one
    points = mean_and_error([{8: 0.2, 16: 0.5}, {8: 0.4}])
    assert points == [pytest.approx((8, 0.3, 0.2, 0.4)), (16, 0.5, 0.5, 0.5)]


def test_scenes_are_drawn_beside_curves(tmp_path):
    goto = TABLES["figure5"].rows[4]
    runs = [made(tmp_path / "a", rollout__success=(0.1, 0.2, 0.3))]
    assert draw_scenes([(goto, runs), (CRAFTER_ROW, [])]).startswith(b"\x89PNG")
