"""Pictures of groups of runs: the curves of `curves` over training turns, and where time went.

A group is a line, the mean over its runs, with a band of one standard deviation. matplotlib is
imported when something is drawn, and here only.
"""

import io
import textwrap
from dataclasses import dataclass

from ppo.reports.curves import Group, Run, mean_and_spread

# Colours that colour-blind readers tell apart: Okabe and Ito's for groups, Tol's for a run's time.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
PARTS = {"warm-up": "#332288", "collect": "#88CCEE", "score": "#DDCC77", "update": "#44AA99",
         "push": "#CC6677", "eval": "#AA4499", "other": "#DDDDDD"}  # fmt: skip
STYLE = {
    "text.parse_math": False,  # a name may hold a $
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.08,
}


@dataclass
class Chart:
    """metrics: the first is a solid line, the second dashed; panel: of the evaluations, dots with
    bars; key: says which is which."""

    file: str
    title: str
    unit: str
    metrics: tuple[str, ...]
    limits: tuple[float, float] | None = None
    panel: str = ""
    key: str = ""


SHARE = (-0.02, 1.02)
CHARTS = [
    Chart("success", "Success", "share of episodes", ("rollout/success",), SHARE, "eval/success",
          "line: training      dots: evaluation, 95 % interval (Wilson)"),
    Chart("return", "Return", "per episode", ("rollout/return",), None, "eval/return",
          "line: training      dots: evaluation, standard error"),
    Chart("kl", "KL to the initial policy", "nats per token", ("kl/ref_think", "kl/ref_action"),
          key="solid: thinking      dashed: action"),
    Chart("valid_action", "Valid actions", "share of turns", ("rollout/valid_action",), SHARE),
    Chart("value_loss", "Value loss", "per token", ("ppo/value_loss",)),
    Chart("explained_variance", "Explained variance", "of returns, by the critic",
          ("ppo/explained_variance",), (-1.05, 1.05)),
    Chart("response_tokens", "Response length", "tokens per turn", ("rollout/response_tokens",)),
]  # fmt: skip


def draw(groups: list[Group]) -> dict[str, bytes]:
    """File name -> PNG of every chart that has something to show."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("matplotlib is missing: pip install -e .[report]") from error
    pictures = {}
    with matplotlib.rc_context(STYLE):
        for chart in CHARTS:
            figure = Figure(figsize=(6.4, 3.8 + 0.2 * len(groups)))
            if _draw_chart(figure, chart, groups):
                pictures[chart.file] = _png(figure)
        runs = [run for group in groups for run in group.runs]
        figure = Figure(figsize=(6.4, 1.7 + 0.3 * len(runs)))
        _draw_time(figure, runs)
        pictures["time"] = _png(figure)
    return pictures


def _draw_chart(figure, chart: Chart, groups: list[Group]) -> bool:
    """The curves and evaluations of every group. Returns False where there are none."""
    axes, drawn = figure.subplots(), False
    axes.set(title=chart.title, ylabel=chart.unit, xlabel="training turns")
    axes.set_title(chart.key, loc="right", size=9, weight="normal", color="#555555")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    for i, group in enumerate(groups):
        label = textwrap.fill(group.label, 90)
        axes.plot([], [], color=colour_of(i), linewidth=4, label=label)  # for the legend
        for metric, line in zip(chart.metrics, ("-", "--"), strict=False):
            points = mean_and_spread([run.curve(metric) for run in group.runs])
            turns, means, low, high = zip(*points, strict=True) if points else ([],) * 4
            axes.plot(turns, means, line, color=colour_of(i), linewidth=1.6)
            axes.fill_between(turns, low, high, color=colour_of(i), alpha=0.18, linewidth=0)
            drawn = drawn or bool(points)
    if chart.panel:
        drawn = _draw_evaluations(axes, chart.panel, groups) or drawn
    axes.set_ylim(chart.limits)
    figure.legend(loc="outside lower left")
    return drawn


def _draw_evaluations(axes, name: str, groups: list[Group]) -> bool:
    """A dot with its bar for every evaluation of every run, side by side where they coincide."""
    runs = [(colour_of(i), run) for i, group in enumerate(groups) for run in group.runs]
    width = max([e["update"] * run.turns for _, run in runs for e in run.evals], default=0)
    for k, (colour, run) in enumerate(runs):
        aside = (k - (len(runs) - 1) / 2) * 0.01 * width
        turns = [e["update"] * run.turns + aside for e in run.evals]
        bars = zip(*[_bar(name, e) for e in run.evals], strict=True) if run.evals else ([], [])
        axes.errorbar(
            turns, [e[name] for e in run.evals], list(bars), fmt="o", color=colour,
            markersize=6, markeredgecolor="white", markeredgewidth=0.8, linewidth=1.2, zorder=3,
        )  # fmt: skip
    return any(run.evals for _, run in runs)


def _bar(name: str, e: dict) -> tuple[float, float]:
    """How far the bar of an evaluation reaches down and up."""
    if name == "eval/return":
        return e["eval/return_stderr"], e["eval/return_stderr"]
    down, up = e[name] - e[f"{name}_low"], e[f"{name}_high"] - e[name]
    return max(0.0, down), max(0.0, up)  # of 0 and 1 a bound may miss by rounding


def _draw_time(figure, runs: list[Run]) -> None:
    axes, starts = figure.subplots(), [0.0] * len(runs)
    for part, colour in PARTS.items():
        minutes = [run.minutes()[part] for run in runs]
        axes.barh(range(len(runs)), minutes, 0.7, left=starts, color=colour, label=part)
        starts = [start + more for start, more in zip(starts, minutes, strict=True)]
    axes.set(title="Time", xlabel="minutes", yticks=range(len(runs)))
    axes.set_yticklabels([run.name for run in runs])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    figure.legend(loc="outside lower left", ncols=len(PARTS), columnspacing=1, handlelength=1)


def colour_of(group: int) -> str:
    return COLOURS[group % len(COLOURS)]


def _png(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()
