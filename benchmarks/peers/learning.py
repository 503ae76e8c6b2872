"""What runs of a real language model learn: success against turns, and against hours.

    python -m benchmarks.peers.learning RUN [RUN ...] [--out FILE.png]

Runs are those that `benchmarks.peers.real_model --runs DIR` keeps. Each is cut into PARTS of
updates, and a cell has the success of the episodes that ended in a part, the turns played and the
hours spent at its end. Hours are wall time of playing and of training.
"""

import math
import sys
from itertools import accumulate, pairwise
from pathlib import Path

from common.plugins import UserError
from reports.drawing import STYLE, colour_of, import_figure, png_of
from reports.evaluations import markdown_table
from reports.program import Program
from reports.run_files import Run, read_runs

PARTS = 4


def main(argv: list[str] | None = None) -> int:
    program = Program("benchmarks.peers.learning", description=__doc__.splitlines()[0])
    program.add_runs()
    program.add_argument("--out", type=Path, default=None, help="draw the curves into this PNG")
    return program.run(lambda args: compare(args.runs, args.out), argv)


def compare(paths: list[Path], out: Path | None) -> None:
    """Print the table of the runs, and draw their curves.

    UserError: one is no run, or matplotlib is missing. OSError: `out` cannot be written
    """
    notes = []
    runs = read_runs(paths, notes)
    if len(runs) < len(paths):
        raise UserError("; ".join(notes))
    if short := [run.name for run in runs if len(run.metrics) < PARTS]:
        raise UserError(f"{short[0]} has fewer than {PARTS} updates")
    parts = {run.name.replace("-", " "): parts_of(run) for run in runs}
    header = ["", *(f"part {k + 1}" for k in range(PARTS))]
    print(markdown_table([header, *([name, *map(cell, found)] for name, found in parts.items())]))
    if out:
        out.write_bytes(picture(parts))


def parts_of(run: Run) -> list[dict]:
    """Return turns and hours at the end of each part, and the success of its episodes."""
    updates = run.metrics
    hours = [*accumulate(line["time/total"] / 3600 for line in updates)]
    ends = [round(k * len(updates) / PARTS) for k in range(PARTS + 1)]
    parts = []
    for first, end in pairwise(ends):
        lines = updates[first:end]
        episodes = [line["batch/episodes"] for line in lines]
        counted = zip(episodes, lines, strict=True)
        successes = sum(n * line["batch/success"] for n, line in counted if n)
        parts.append({
            "turns": updates[end - 1]["turns"], "hours": hours[end - 1], "episodes": sum(episodes),
            "success": successes / sum(episodes) if sum(episodes) else math.nan,
        })  # fmt: skip
    return parts


def cell(part: dict) -> str:
    return "{success:.2f} of {episodes:.0f} ({turns:,.0f} turns, {hours:.2f} h)".format(**part)


def picture(runs: dict[str, list[dict]]) -> bytes:
    """Return a PNG with two panels: success against turns, and against hours."""
    Figure, rc_context = import_figure()
    with rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.6))
        for axes, axis in zip(figure.subplots(1, 2, sharey=True), ("turns", "hours"), strict=True):
            for k, (name, parts) in enumerate(runs.items()):
                at, success = [[part[key] for part in parts] for key in (axis, "success")]
                label = name if axis == "turns" else None
                axes.plot(at, success, color=colour_of(k), marker="o", label=label)
            axes.set(xlabel=f"{axis} at the end of a part", xlim=(0, None), ylim=(-0.02, 1.02))
        figure.axes[0].set(title="Success of the episodes that ended in each part")
        figure.legend(loc="outside lower left", ncols=3)
        return png_of(figure)


if __name__ == "__main__":
    sys.exit(main())
