"""Figure 5: the training curve of each scenario beside a picture of its environment, in one PNG.

A curve is the mean over seeds inside a band of one standard error.
"""

import math

from paper.rows import PaperRow
from reports.charts import GROUP_COLOURS, SOFT, STYLE, import_figure, mean_and_spread, png_of
from reports.run_files import Run

COLUMNS = 3  # of pairs


def draw_scenes(rows: list[tuple[PaperRow, list[Run]]]) -> bytes:
    """The PNG. A scenario without a run has its picture and empty axes."""
    Figure, rc_context = import_figure()
    lines = math.ceil(len(rows) / COLUMNS)
    with rc_context(STYLE | {"font.size": 8}):
        figure = Figure(figsize=(5.2 * COLUMNS, 2.2 * lines))
        axes = figure.subplots(lines, 2 * COLUMNS, width_ratios=[1, 1.4] * COLUMNS, squeeze=False)
        for k, (row, runs) in enumerate(rows):
            line, column = divmod(k, COLUMNS)
            _scene(axes[line][2 * column], row)
            _curve(axes[line][2 * column + 1], row, runs)
        for k in range(len(rows), lines * COLUMNS):
            for blank in axes[k // COLUMNS][2 * (k % COLUMNS) :][:2]:
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
    axes.locator_params(axis="x", nbins=4)  # more of them would run into each other
    if row.measure == "success":
        axes.set_ylim(-0.02, 1.02)
    curves = [run.curve(f"rollout/{row.measure}") for run in runs]
    if points := mean_and_error(curves):
        turns, means, low, high = zip(*points, strict=True)
        axes.plot(turns, means, color=GROUP_COLOURS[0], linewidth=1.4)
        axes.fill_between(turns, low, high, color=GROUP_COLOURS[0], alpha=0.2, linewidth=0)


def mean_and_error(curves: list[dict[int, float]]) -> list[tuple[int, float, float, float]]:
    """(turns, mean m, m - e, m + e) where any curve has a value; e is the standard error over
    those that have one, and 0 for a single curve."""
    points = []
    for turns, mean, low, _ in mean_and_spread(curves):
        error = (mean - low) / math.sqrt(sum(turns in curve for curve in curves))
        points.append((turns, mean, mean - error, mean + error))
    return points
