"""Learning curves: mean and spread by hand, what is drawn, the page."""

import builtins
import re
from html.parser import HTMLParser

import pytest
from made_runs import EVALUATION, write_run
from matplotlib.figure import Figure

from reports.charts import CHARTS, _draw_chart, _draw_time, draw_charts, mean_and_spread
from reports.curves import curves_page, main
from reports.drawing import DARK, INK, colour_of, sign_of, svg_of
from reports.finals import final_numbers
from reports.groups import group_runs
from reports.run_files import Run, read_runs


def update(u, success=0.5, **more):
    return {"update": u + 1, "turns": 8 * (u + 1), "rollout/success": success} | more


# ---- numbers ------------------------------------------------------------------------------------


def test_mean_and_spread_by_hand():
    # at 8: mean (.2 + .6) / 2 = .4, deviation ((.2^2 + .2^2) / 1)^.5 = .282843
    # at 16: 1, 2, 3 -> mean 2, deviation ((1 + 0 + 1) / 2)^.5 = 1;  at 24: one run is left, 5
    curves = [{8: 0.2, 16: 1.0, 24: 5.0}, {8: 0.6, 16: 2.0}, {16: 3.0}]
    expected = [(8, 0.4, 0.117157, 0.682843), (16, 2, 1, 3), (24, 5, 5, 5)]
    for point, by_hand in zip(mean_and_spread(curves), expected, strict=True):
        assert point == pytest.approx(by_hand, abs=1e-6)
    assert mean_and_spread([{}, {}]) == []


def test_the_band_that_is_drawn_is_that_of_the_group(tmp_path):
    # success .2 and .6 after one update of 8 turns: a line at .4 and a band .4 -+ .282843
    paths = [
        write_run(tmp_path / f"s{seed}", [update(0, success)], seed=seed)
        for seed, success in ((1, 0.2), (2, 0.6))
    ]
    figure = Figure()
    assert _draw_chart(figure, CHARTS[0], group_runs(read_runs(paths, [])))
    axes = figure.axes[0]
    lines = [list(line.get_xydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]
    assert [8, pytest.approx(0.4)] in lines
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (min(heights), max(heights)) == pytest.approx((0.4 - 0.08**0.5, 0.4 + 0.08**0.5))


def test_evaluations_stand_at_the_turns_trained_so_far(tmp_path):
    # after 3 updates of 2 x 4 turns: 24; a Wilson bar from .1 to .5 around .25
    run = write_run(tmp_path / "run", evals=[EVALUATION | {"update": 3}])
    figure = Figure()
    assert _draw_chart(figure, CHARTS[0], group_runs(read_runs([run], [])))
    (bar,) = figure.axes[0].containers
    assert list(bar.lines[0].get_xydata()[0]) == [24, 0.25]
    (segment,) = bar.lines[2][0].get_segments()
    assert segment.tolist() == [[24, pytest.approx(0.1)], [24, 0.5]]


def test_a_figure_without_bounds_is_a_dot(tmp_path):
    known, unknown = {"eval/thought_information": 0.75}, {"eval/thought_information": None}
    evals = [EVALUATION | {"update": 2} | known, EVALUATION | {"update": 3} | unknown]
    groups = group_runs(read_runs([write_run(tmp_path / "run", evals=evals)], []))
    (chart,) = (chart for chart in CHARTS if chart.file == "thought_information")
    figure = Figure()
    assert _draw_chart(figure, chart, groups)
    dot, *success = figure.axes[0].containers
    assert list(dot.lines[0].get_xydata()[0]) == [16, 0.75] and not dot.has_yerr
    assert [each.lines[0].get_fillstyle() for each in success] == ["none", "none"]


def test_a_bound_that_misses_by_rounding_is_drawn(tmp_path):
    full = {"eval/success": 1.0, "eval/success_low": 0.9, "eval/success_high": 1 - 2**-53}
    run = write_run(tmp_path / "run", evals=[EVALUATION | full])
    figure = Figure()
    assert _draw_chart(figure, CHARTS[0], group_runs(read_runs([run], [])))
    (segment,) = figure.axes[0].containers[0].lines[2][0].get_segments()
    assert segment.tolist() == [[0, pytest.approx(0.9)], [0, 1.0]]


def test_minutes_by_hand():
    # update: total 120 s of which 30 collect, 60 update, 12 score, 6 push -> 12 s are left
    times = {"time/collect": 30, "time/update": 60, "time/score": 12, "time/push": 6}
    times["time/total"] = 120
    evals, warmup = [{"time/total": 90}, {"time/total": 30}], [{"time/total": 240}]
    run = Run("name", {}, 1, "-", 8, [times, times], evals, warmup)
    by_hand = {"warm-up": 4, "collect": 1, "score": 0.4, "update": 2, "push": 0.2, "eval": 2}
    assert run.minutes() == pytest.approx(by_hand | {"other": 0.4})
    figure = Figure()
    _draw_time(figure, [run])
    bars = figure.axes[0].patches
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(10)  # 4 + 2 x 2 + 2 minutes


def test_dots_of_many_runs_stand_where_they_belong_without_bars(tmp_path):
    late = EVALUATION | {"update": 3}
    paths = [write_run(tmp_path / f"r{k}", evals=[late], lr=k) for k in range(9)]
    figure, groups = Figure(), group_runs(read_runs(paths, []))
    assert _draw_chart(figure, CHARTS[0], groups)
    dots = [bar.lines[0].get_xydata()[0].tolist() for bar in figure.axes[0].containers]
    assert dots == [[24, 0.25]] * 9  # none is moved aside
    assert not any(bar.has_yerr for bar in figure.axes[0].containers)
    # the ninth group has the colour of the first, and a mark of its own
    assert (colour_of(8), sign_of(8)) == (colour_of(0), "●") and sign_of(7) == "■"


def test_final_numbers_by_hand(tmp_path):
    # two seeds: success .5 and .7 after training -> mean .6, deviation (.01 + .01)^.5 = .141;
    # the third run was never evaluated, and its training success is a gap after the first update
    runs = [
        write_run(tmp_path / "a", [update(0, 0.2), update(1, 0.4)], seed=1, lr=1e-4,
                  evals=[EVALUATION, EVALUATION | {"update": 2, "eval/success": 0.5}]),
        write_run(tmp_path / "b", [update(0, 0.6)], seed=2, lr=1e-4,
                  evals=[EVALUATION | {"update": 1, "eval/success": 0.7}]),
        write_run(tmp_path / "c", [update(0, 0.3), update(1, None)], evals=[], lr=2e-4),
    ]  # fmt: skip
    head, pair, alone = final_numbers(group_runs(read_runs(runs, [])))
    texts = dict(zip(head[1:], pair[1:], strict=True))
    assert pair[0].endswith("</b> lr 0.0001 (2 seeds)")
    assert (texts["seeds"], texts["updates"]) == ("1 2", "1-2")
    assert texts["success before"] == "0.250 [0.100, 0.500]"  # one of them has it
    assert texts["after"] == "0.600 ± 0.141" and texts["training success"] == "0.500 ± 0.141"
    texts = dict(zip(head[1:], alone[1:], strict=True))
    assert (texts["success before"], texts["after"], texts["return after"]) == ("-", "-", "-")
    assert texts["training success"] == "0.300" and texts["KL"] == "-"


def test_a_picture_in_the_page_follows_a_dark_screen(tmp_path):
    pictures = draw_charts(group_runs(read_runs([write_run(tmp_path / "run")], [])), svg_of)
    text = pictures["success"].decode()
    assert text.count(INK) == 1 and f"--ink:{INK};" in text  # in the variable alone
    assert f"@media (prefers-color-scheme:dark){{svg{{--ink:{DARK[INK]};" in text


# ---- what goes wrong -----------------------------------------------------------------------------


def test_missing_files_get_one_line_each(tmp_path, capsys):
    path = write_run(tmp_path / "run", w_epoch=40)
    (path / "metrics.jsonl").unlink()
    (tmp_path / "empty").mkdir()
    broken = write_run(tmp_path / "broken")
    (broken / "args.json").write_text('{"args": {"seed"')
    paths = [str(tmp_path / name) for name in ("run", "empty", "broken", "nowhere")]
    assert main([*paths, "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "run/metrics.jsonl: No such file or directory",
        "run/warmup.jsonl: No such file or directory",
        "empty: skipped, it has no valid args.json",
        "broken: skipped, it has no valid args.json",
        "nowhere: skipped, it has no valid args.json",
        str(tmp_path / "out" / "index.html"),
    ]
    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert written == {"index.html", "success.png", "return.png", "time.png"}  # evaluations only


@pytest.mark.parametrize("case", ["no run", "out is a file", "no matplotlib"])
def test_a_mistake_is_one_line_and_code_2(tmp_path, capsys, monkeypatch, case):
    run, out = write_run(tmp_path / "run"), tmp_path / "out"
    if case == "no run":
        run = tmp_path
    elif case == "out is a file":
        out.write_text("")
    else:
        real = builtins.__import__

        def without(name, *args, **kwargs):
            if name.startswith("matplotlib"):
                raise ImportError(name)
            return real(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", without)
    assert main([str(run), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("reports.curves: error: ") and error.count("\n") == 1


# ---- the page -----------------------------------------------------------------------------------


class Links(HTMLParser):
    """Everything that a browser would load or run."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.links = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [v for k, v in attributes if k in ("src", "href", "srcset", "style")]


def test_the_page_is_whole_and_needs_nothing_else(tmp_path):
    names = {
        "rollout/return": "return", "kl/ref_think": "kl", "ppo/value_loss": "value_loss",
        "ppo/explained_variance": "explained_variance", "rollout/valid_action": "valid_action",
        "rollout/response_tokens": "response_tokens",
    }  # fmt: skip
    metrics = [update(u, **dict.fromkeys(names, 0.5)) for u in range(2)]
    runs = [
        write_run(tmp_path / "a" / "run", metrics, evals=[EVALUATION, EVALUATION | {"update": 2}]),
        write_run(tmp_path / "b" / "run", metrics, n_env=4),
    ]
    assert main([*map(str, runs), "--out", str(tmp_path / "out")]) == 0
    html = (tmp_path / "out" / "index.html").read_text()
    pictures = {file.stem for file in (tmp_path / "out").glob("*.png")}
    assert pictures == {"success", "time", *names.values()}
    seen = Links(html)
    assert not {"script", "link", "iframe", "object", "base"} & set(seen.tags)
    assert all(re.match(r"data:image/svg\+xml;base64,|color:#", link) for link in seen.links)
    assert "//" not in re.sub('base64,[^"]*', "", html) and "url(" not in html
    assert len([link for link in seen.links if link.startswith("data:")]) == len(pictures)
    assert "a/run</td><td>1</td><td>aaaaaaa-dirty</td><td>2 of 3</td>" in html
    assert "<td>0.250 [0.100, 0.500]</td><td>0.250 [0.100, 0.500] (update 2)</td>" in html
    assert "■</b> n_env 2</td><td>2</td></tr>" in html and "Learning curves: toy</h1>" in html


@pytest.mark.parametrize("name", ['<img src=x onerror="a()">&', "$runs $\\frac$ {} %s", "_\udcff"])
def test_names_are_text_and_nothing_else(tmp_path, name):
    paths = [write_run(tmp_path / name, [update(0)], env_name=name, lr="<b>")]
    paths += [write_run(tmp_path / "other", [update(0)], lr="<i>")]
    assert main([*map(str, paths), "--out", str(tmp_path / "out")]) == 0  # drawn as well
    seen = Links((tmp_path / "out" / "index.html").read_text())
    assert seen.tags.count("img") == 3 and "i" not in seen.tags  # success, return, time
    assert all(link.startswith(("data:image/svg", "color:#")) for link in seen.links)


def test_a_run_without_evaluations_has_dashes_in_the_table():
    run = Run("name", {"num_updates": 3}, 1, "-", 8, [], [], [])
    html = curves_page(group_runs([run]), {}, ["a < b"])
    assert "<td>0 of 3</td><td>-</td><td>-</td><td>0.0</td>" in html
    assert "<li>a &lt; b</li>" in html and "settings that differ" not in html
