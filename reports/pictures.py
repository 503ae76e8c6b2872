"""Draws single pictures: the critic's values over the truth, and the credit of an episode."""

import textwrap

from reports.drawing import GRID, GROUP_COLOURS, INK, SOFT, STYLE, colour_of, import_figure, png_of


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
