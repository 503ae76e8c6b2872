"""Draws Figure 5: the training curve of each scenario beside an image of its environment.

A curve is the mean over seeds with a band of one standard error.
"""

import math

from paper.rows import PaperRow
from reports.charts import mean_and_spread
from reports.drawing import GROUP_COLOURS, SOFT, STYLE, import_figure, png_of
from reports.run_files import Run

PAIRS_PER_LINE = 3


def draw_scenes(rows: list[tuple[PaperRow, list[Run]]]) -> bytes:
    """Return the PNG. A scenario without a run gets its image and empty axes."""
    Figure, rc_context = import_figure()
    widths = [1, 1.4] * PAIRS_PER_LINE
    lines = math.ceil(len(rows) / PAIRS_PER_LINE)
    with rc_context(STYLE | {"font.size": 8}):
        figure = Figure(figsize=(5.2 * PAIRS_PER_LINE, 2.2 * lines))
        axes = figure.subplots(lines, 2 * PAIRS_PER_LINE, width_ratios=widths, squeeze=False)
        for k, (row, runs) in enumerate(rows):
            line, column = divmod(k, PAIRS_PER_LINE)
            _scene(axes[line][2 * column], row)
            _curve(axes[line][2 * column + 1], row, runs)
        for k in range(len(rows), lines * PAIRS_PER_LINE):
            for blank in axes[k // PAIRS_PER_LINE][2 * (k % PAIRS_PER_LINE) :][:2]:
                blank.set_axis_off()
        return png_of(figure)


def _scene(axes, row: PaperRow) -> None:
    from reports.replay import first_picture  # here: it imports environments

    axes.imshow(first_picture(row.env))
    axes.set_axis_off()


def _curve(axes, row: PaperRow, runs: list[Run]) -> None:
    axes.set_title(row.env, size=7)
    axes.set_ylabel(row.measure)
    axes.set_xlabel("training turns", color=SOFT)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.locator_params(axis="x", nbins=4)  # more of them would overlap
    if row.measure == "success":
        axes.set_ylim(-0.02, 1.02)
    curves = [run.curve(f"rollout/{row.measure}") for run in runs]
    if points := mean_and_error(curves):
        turns, means, low, high = zip(*points, strict=True)
        axes.plot(turns, means, color=GROUP_COLOURS[0], linewidth=1.4)
        axes.fill_between(turns, low, high, color=GROUP_COLOURS[0], alpha=0.2, linewidth=0)


def mean_and_error(curves: list[dict[int, float]]) -> list[tuple[int, float, float, float]]:
    """Return (turns, m, m - e, m + e) wherever a curve has a value.

    m and e are mean and standard error over the curves with a value; e is 0 for a single curve.
    """
    points = []
    for turns, mean, low, _ in mean_and_spread(curves):
        error = (mean - low) / math.sqrt(sum(turns in curve for curve in curves))
        points.append((turns, mean, mean - error, mean + error))
    return points
