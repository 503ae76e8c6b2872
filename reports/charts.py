"""Draws groups of runs: learning curves over training turns, and the time of each phase.

Each group is drawn as the mean over its runs with a band of one standard deviation. Charts are PNG
files with a legend, or SVG without one, for a page with a legend of its own.
"""

import statistics
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from reports.drawing import MARKERS, SOFT, STYLE, colour_of, import_figure, png_of, sign_of
from reports.groups import Group
from reports.run_files import Run

# Tol's palette for colour-blind readers
PHASE_COLOURS = {"warm-up": "#332288", "collect": "#88CCEE", "score": "#DDCC77",
                 "update": "#44AA99",
                 "push": "#CC6677", "eval": "#AA4499", "other": "#DDDDDD"}  # fmt: skip


@dataclass
class Chart:
    """One chart. The first metric is a solid line, the second a dashed one. Of the evaluations the
    first is filled dots, the second hollow ones."""

    file: str
    title: str
    unit: str
    metrics: tuple[str, ...]
    limits: tuple[float, float] | None = None
    evaluations: tuple[str, ...] = ()  # keys of eval.jsonl, drawn as dots with error bars
    key: str = ""  # legend of the line styles
    bars: str = ""  # meaning of the error bars


MAX_BARS = 8  # runs with error bars; more of them would overlap, and the table has the numbers
SHARE_LIMITS = (-0.02, 1.02)
CHARTS = [
    Chart("success", "Success", "share of episodes", ("rollout/success",), SHARE_LIMITS,
          ("eval/success",),
          "line: training      dots: evaluation", "95 % interval (Wilson)"),
    Chart("return", "Return", "per episode", ("rollout/return",), None, ("eval/return",),
          "line: training      dots: evaluation", "standard error"),
    Chart("achievements", "Achievements", "per episode, of 22", ("rollout/achievements",)),
    Chart("kl", "KL to the initial policy", "nats per token", ("kl/ref_think", "kl/ref_action"),
          key="solid: thinking      dashed: action"),
    Chart("valid_action", "Valid actions", "share of turns", ("rollout/valid_action",),
          SHARE_LIMITS),
    Chart("thought_information", "Thought information", "1: thoughts tell their prompts apart", (),
          SHARE_LIMITS, ("eval/thought_information", "eval/success"),
          "filled: thought information      hollow: success"),
    Chart("entropy", "Entropy", "nats per token", ("ppo/entropy",)),
    Chart("value_loss", "Value loss", "per token", ("ppo/value_loss",)),
    Chart("explained_variance", "Explained variance", "of returns, by the critic",
          ("ppo/explained_variance",), (-1.05, 1.05)),
    Chart("response_tokens", "Response length", "tokens per turn", ("rollout/response_tokens",)),
]  # fmt: skip


def draw_charts(groups: list[Group], save: Callable | None = None) -> dict[str, bytes]:
    """Map file names to images, for every chart with data.

    save: `png_of` (the default) draws a legend, `svg_of` does not
    """
    Figure, rc_context = import_figure()
    save = save or png_of
    runs = [run for group in groups for run in group.runs]
    legend, images = save is png_of, {}
    with rc_context(STYLE):
        for chart in CHARTS:
            figure = Figure(figsize=(6.4, 3.8 + 0.2 * len(groups) * legend))
            if _draw_chart(figure, chart, groups, legend):
                images[chart.file] = save(figure)
        figure = Figure(figsize=(6.4, 1.7 + 0.3 * len(runs)))
        _draw_time(figure, runs)
        images["time"] = save(figure)
    return images


def _draw_chart(figure, chart: Chart, groups: list[Group], legend: bool = True) -> bool:
    """Draw the curves and evaluations of every group. Returns False if there are none."""
    axes, drawn = figure.subplots(), False
    axes.set(title=chart.title, ylabel=chart.unit, xlabel="training turns")
    bars = f", {chart.bars}" if chart.bars and has_bars(groups) else ""
    axes.set_title(chart.key + bars, loc="right", size=9, weight="normal", color=SOFT)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    for i, group in enumerate(groups):
        colour, marker = colour_of(i), MARKERS[sign_of(i)]
        style = dict(marker=marker, markersize=4, markevery=0.1) if marker else {}
        label = textwrap.fill(group.label, 90)
        axes.plot([], [], color=colour, linewidth=4, label=label, **style)  # for the legend
        for metric, line in zip(chart.metrics, ("-", "--"), strict=False):
            points = mean_and_spread([run.curve(metric) for run in group.runs])
            turns, means, low, high = zip(*points, strict=True) if points else ([],) * 4
            axes.plot(turns, means, line, color=colour, linewidth=1.6, **style)
            axes.fill_between(turns, low, high, color=colour, alpha=0.18, linewidth=0)
            drawn = drawn or bool(points)
    for name, filled in zip(chart.evaluations, (True, False), strict=False):
        if not _draw_evaluations(axes, name, groups, filled):
            break  # the second is there for comparison with the first
        drawn = True
    axes.set_ylim(chart.limits)
    if legend:
        figure.legend(loc="outside lower left")
    return drawn


def _draw_evaluations(axes, name: str, groups: list[Group], filled: bool) -> bool:
    """Draw a dot with its error bar for every evaluation, at the turns trained so far."""
    runs = [(i, run) for i, group in enumerate(groups) for run in group.runs]
    dots = [(i, run, e) for i, run in runs for e in run.evals if e.get(name) is not None]
    for i, run, e in dots:
        bar = error_bar(e, name) if has_bars(groups) else None
        axes.errorbar(
            run.turns_after(e["update"]), e[name], bar, fmt=MARKERS[sign_of(i)] or "o",
            color=colour_of(i), markersize=6, zorder=3, linewidth=1.2, alpha=0.85,
            fillstyle="full" if filled else "none",
        )  # fmt: skip
    return bool(dots)


def error_bar(e: dict, name: str) -> list[list[float]] | None:
    """Return the lengths of the bar below and above a figure of an evaluation, None without one."""
    if name == "eval/return":
        return [[e["eval/return_stderr"]]] * 2
    if f"{name}_low" not in e:
        return None
    # rounding can put a bound beyond a share of 0 or 1
    return [[max(0.0, e[name] - e[f"{name}_low"])], [max(0.0, e[f"{name}_high"] - e[name])]]


def has_bars(groups: list[Group]) -> bool:
    return sum(len(group.runs) for group in groups) <= MAX_BARS


def _draw_time(figure, runs: list[Run]) -> None:
    axes, starts = figure.subplots(), [0.0] * len(runs)
    for phase, colour in PHASE_COLOURS.items():
        minutes = [run.minutes()[phase] for run in runs]
        axes.barh(range(len(runs)), minutes, 0.7, left=starts, color=colour, label=phase)
        starts = [start + more for start, more in zip(starts, minutes, strict=True)]
    axes.set(title="Time", xlabel="minutes", yticks=range(len(runs)))
    axes.set_yticklabels([run.name for run in runs])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    figure.legend(
        loc="outside lower left", ncols=len(PHASE_COLOURS), columnspacing=1, handlelength=1
    )


def mean_and_spread(curves: list[dict[int, float]]) -> list[tuple[int, float, float, float]]:
    """Return (turns, m, m - s, m + s) wherever a curve has a value.

    m and s are mean and sample standard deviation over the curves with a value at these turns; s is
    0 for a single curve.
    """
    points = []
    for turns in sorted(set().union(*curves)):
        values = [curve[turns] for curve in curves if turns in curve]
        mean = statistics.fmean(values)
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        points.append((turns, mean, mean - spread, mean + spread))
    return points
