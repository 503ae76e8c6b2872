"""Draws groups of runs: learning curves over training turns, and the time of each phase.

Each group is drawn as the mean over its runs with a band of one standard deviation. Charts are PNG
files with a legend, or SVG without one, for a page with a legend of its own. The SVG follows the
reader's colour scheme, dark or light. Only this file imports matplotlib, and only to draw.
"""

import io
import statistics
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from common.plugins import UserError
from reports.groups import Group
from reports.run_files import Run

# Palettes for colour-blind readers: Okabe and Ito for groups, Tol for phases.
GROUP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B",
                 "#999999")  # fmt: skip
MARKERS = {"■": "", "●": "o", "▲": "^", "◆": "D"}  # change when the colours repeat
PHASE_COLOURS = {"warm-up": "#332288", "collect": "#88CCEE", "score": "#DDCC77",
                 "update": "#44AA99",
                 "push": "#CC6677", "eval": "#AA4499", "other": "#DDDDDD"}  # fmt: skip
INK, SOFT, GRID = "#222222", "#555555", "#e4e4e4"
DARK = {INK: "#e3e7ec", SOFT: "#98a2ae", GRID: "#2d343d"}  # the same in a dark colour scheme
STYLE = {
    "text.parse_math": False,  # names may contain a $
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "svg.hashsalt": "the same in every run",
    "axes.titlelocation": "left", "axes.titleweight": "bold",
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID,
    "legend.frameon": False, "legend.fontsize": 9, "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1, "figure.constrained_layout.h_pad": 0.08,
}  # fmt: skip


@dataclass
class Chart:
    """One chart. The first metric is a solid line, the second a dashed one."""

    file: str
    title: str
    unit: str
    metrics: tuple[str, ...]
    limits: tuple[float, float] | None = None
    evaluation: str = ""  # key of eval.jsonl, drawn as dots with error bars
    key: str = ""  # legend of the line styles
    bars: str = ""  # meaning of the error bars


MAX_BARS = 8  # runs with error bars; more of them would overlap, and the table has the numbers
SHARE_LIMITS = (-0.02, 1.02)
CHARTS = [
    Chart("success", "Success", "share of episodes", ("rollout/success",), SHARE_LIMITS,
          "eval/success",
          "line: training      dots: evaluation", "95 % interval (Wilson)"),
    Chart("return", "Return", "per episode", ("rollout/return",), None, "eval/return",
          "line: training      dots: evaluation", "standard error"),
    Chart("achievements", "Achievements", "per episode, of 22", ("rollout/achievements",)),
    Chart("kl", "KL to the initial policy", "nats per token", ("kl/ref_think", "kl/ref_action"),
          key="solid: thinking      dashed: action"),
    Chart("valid_action", "Valid actions", "share of turns", ("rollout/valid_action",),
          SHARE_LIMITS),
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


def draw_values(panels: dict[str, list[tuple[float, float]]]) -> bytes:
    """Return a PNG with a panel for each title: what is expected of states over what they earn.

    panels: title -> (truth, expected) of each state
    """
    Figure, rc_context = import_figure()
    with rc_context(STYLE):
        figure = Figure(figsize=(3.2 * len(panels), 3.4))
        every = [number for points in panels.values() for point in points for number in point]
        ends = min(every), max(every)
        axes = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0]
        for one, (title, points) in zip(axes, panels.items(), strict=True):
            one.plot(ends, ends, color=SOFT, linewidth=1)  # a critic that knows everything
            one.plot(
                *zip(*points, strict=True), "o", color=GROUP_COLOURS[0], markersize=4, alpha=0.6
            )
            one.set(title=title, xlabel="mean return of the continuations")
        axes[0].set_ylabel("V")
        return png_of(figure)


def draw_credit(turns: list, title: str) -> bytes:
    """Return a PNG of the turns of an episode: whose they are, their rewards, V and advantages.

    turns: from `reports.credit`, in their order
    """
    Figure, rc_context = import_figure()
    agents = list(dict.fromkeys(turn.agent for turn in turns))
    numbers = range(1, len(turns) + 1)
    with rc_context(STYLE):
        height = 1.2 + 0.35 * len(agents)
        figure = Figure(figsize=(max(6.4, 1.2 + 0.45 * len(turns)), height + 2.4))
        rows, bars = figure.subplots(2, 1, sharex=True, height_ratios=(height, 2.2))
        rows.plot(numbers, [agents.index(turn.agent) for turn in turns], color=GRID, zorder=1)
        for i, agent in enumerate(agents):
            own = [k for k, turn in zip(numbers, turns, strict=True) if turn.agent == agent]
            rows.scatter(own, [i] * len(own), s=70, color=colour_of(i), zorder=2)
            plain = dict(facecolor="white", edgecolor="none", pad=1)  # the line runs behind it
            label = textwrap.shorten(agent, 50, placeholder=" ...")
            rows.text(0.5, i - 0.22, label, size=8, bbox=plain)
        rows.set(title=title, ylim=(len(agents) - 0.5, -0.8), yticks=[])
        rows.grid(False)
        colours = [colour_of(agents.index(turn.agent)) for turn in turns]
        width, advantages = 0.55, [turn.advantage for turn in turns]
        bars.bar(numbers, advantages, width, color=colours, alpha=0.45, label="advantage")
        bars.plot(numbers, [turn.reward for turn in turns], "v", color=INK, label="reward")
        if all(turn.value is not None for turn in turns):
            bars.plot(numbers, [turn.value for turn in turns], "_", color=SOFT, markersize=14,
                      markeredgewidth=2, label="V before it")  # fmt: skip
        for k, (before, turn) in enumerate(zip(turns, turns[1:], strict=False), 1):
            if before.update != turn.update:  # a batch ended between these turns
                bars.axvline(k + 0.5, color=SOFT, linewidth=1, linestyle=":")
        bars.axhline(0, color=INK, linewidth=0.8)
        bars.set(xlabel="turn", xlim=(0.4, len(turns) + 0.6), xticks=numbers)
        figure.legend(loc="outside lower left", ncols=3)
        return png_of(figure)


def import_figure() -> tuple:
    """Return matplotlib's Figure and rc_context. UserError: it is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("matplotlib is missing: pip install matplotlib") from error
    return Figure, rc_context


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
    if chart.evaluation:
        drawn = _draw_evaluations(axes, chart.evaluation, groups) or drawn
    axes.set_ylim(chart.limits)
    if legend:
        figure.legend(loc="outside lower left")
    return drawn


def _draw_evaluations(axes, name: str, groups: list[Group]) -> bool:
    """Draw a dot with its error bar for every evaluation, at the turns trained so far."""
    runs = [(i, run) for i, group in enumerate(groups) for run in group.runs]
    for i, run in runs:
        for e in run.evals:
            if name == "eval/return":
                down = up = e["eval/return_stderr"]
            else:  # rounding can put a bound beyond a share of 0 or 1
                down, up = e[name] - e[f"{name}_low"], e[f"{name}_high"] - e[name]
            bar = [[max(0.0, down)], [max(0.0, up)]] if has_bars(groups) else None
            axes.errorbar(
                run.turns_after(e["update"]), e[name], bar, fmt=MARKERS[sign_of(i)] or "o",
                color=colour_of(i), markersize=6, zorder=3, linewidth=1.2, alpha=0.85,
            )  # fmt: skip
    return any(run.evals for _, run in runs)


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


def colour_of(group: int) -> str:
    return GROUP_COLOURS[group % len(GROUP_COLOURS)]


def sign_of(group: int) -> str:
    """Return a key of MARKERS, which distinguishes groups of the same colour."""
    return list(MARKERS)[group // len(GROUP_COLOURS) % len(MARKERS)]


def png_of(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def svg_of(figure) -> bytes:
    """Return an SVG whose neutral colours follow the reader's colour scheme."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text, names = file.getvalue(), {INK: "--ink", SOFT: "--soft", GRID: "--grid"}
    for colour, name in names.items():
        text = text.replace(colour, f"var({name})")
    light = "".join(f"{name}:{colour};" for colour, name in names.items())
    dark = "".join(f"{name}:{DARK[colour]};" for colour, name in names.items())
    dark = f"@media (prefers-color-scheme:dark){{svg{{{dark}}}}}"
    style = f"<style>svg{{{light}}}{dark}</style>"
    return text.replace("<defs>", f"{style}<defs>", 1).encode("utf-8", "replace")
