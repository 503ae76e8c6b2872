"""Draws the learning curves of runs: PNG files, and one HTML page that needs nothing else.

    python -m ppo.reports.curves RUN [RUN ...] [--out DIR]

Runs that differ in nothing but their seeds are drawn as one. `run_files` reads and groups the runs,
`charts` draws the pictures, and this file writes the page.
"""

import base64
import sys
from html import escape
from pathlib import Path
from string import Template

from ppo.reports.charts import colour_of, draw_charts
from ppo.reports.evaluations import cell_text
from ppo.reports.program import Program
from ppo.reports.run_files import Group, Run, differing, group_runs, read_runs


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="ppo.reports.curves", description="Draw the learning curves of runs.")
    program.add_runs()
    default = Path("runs/report")
    program.add_argument("--out", type=Path, default=default, help="directory (%(default)s)")
    return program.run(lambda args: print(write_curves(args.runs, args.out)), argv)


def write_curves(paths: list[Path], out: Path) -> Path:
    """Write the pictures and index.html into `out`, and return the path of index.html.

    ValueError: no path is a run, or matplotlib is missing. OSError: `out` cannot be written.
    """
    notes = []
    groups = group_runs(read_runs(paths, notes))
    for note in notes:
        print(note)
    if not groups:
        raise ValueError("none of these is the directory of a run")
    out.mkdir(parents=True, exist_ok=True)
    pictures = draw_charts(groups)
    for name, png in pictures.items():
        (out / f"{name}.png").write_bytes(png)
    html = curves_page(groups, pictures, notes).encode("utf-8", "replace")
    (out / "index.html").write_bytes(html)
    return out / "index.html"


def curves_page(groups: list[Group], pictures: dict[str, bytes], notes: list[str]) -> str:
    """The HTML, with the pictures in it. All text that comes from a run is escaped."""
    runs = [(i, run) for i, group in enumerate(groups) for run in group.runs]
    head = ["run", "seed", "commit", "updates", "success before", "after", "minutes"]
    image = '<img alt="{}" src="data:image/png;base64,{}">'
    images = [image.format(n, base64.b64encode(png).decode()) for n, png in pictures.items()]
    return Template(PAGE).substitute(
        runs=_table([head, *(_row(run, i) for i, run in runs)]),
        differences=_differences(groups),
        notes="".join(f"<li>{escape(note)}</li>" for note in notes),
        images="\n".join(images),
    )


def _row(run: Run, group: int) -> list[str]:
    before = [e for e in run.evals if e["update"] == 0][-1:]
    after = [e for e in run.evals if e["update"] > 0][-1:]
    return [
        _named(run.name, group),
        str(run.seed),
        escape(run.commit),
        f"{len(run.metrics)} of {escape(str(run.settings.get('num_updates', '-')))}",
        "".join(cell_text("success", e) for e in before) or "-",
        "".join(f"{cell_text('success', e)} ({e['update']:.0f} updates)" for e in after) or "-",
        f"{sum(run.minutes().values()):.1f}",
    ]


def _differences(groups: list[Group]) -> str:
    """A table of the settings that differ between groups."""
    runs = [group.runs[0] for group in groups]
    head = ["what differs", *(_named(group.label, i) for i, group in enumerate(groups))]
    rows = [
        [escape(name), *(escape(str(run.settings.get(name, "-"))) for run in runs)]
        for name in differing(runs)
    ]
    return _table([head, *rows]) if rows else ""


def _named(name: str, group: int) -> str:
    """HTML of a name behind a square in the colour of its group."""
    return f'<b style="color:{colour_of(group)}">&#9632;</b> {escape(name)}'


def _table(rows: list[list[str]]) -> str:
    """An HTML table. The cells are HTML, too, and the first row is the head."""
    line = lambda cells, tag: f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
    head, *others = rows
    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in others)}</table>"


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Learning curves</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1240px;
       padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 14px; margin-bottom: 1.5em;
        font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: 3px 16px 3px 0; border-bottom: 1px solid #ddd }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 18px;
          align-items: start }
img { width: 100% }
</style>
<h1>Learning curves</h1>
$runs
$differences
<ul>$notes</ul>
<p>A line is the mean over the runs of a colour, and its band is one standard deviation over them.
It is drawn where at least one of them has the figure. Training success and return are means over
the last 100 episodes that ended, and gaps while fewer than 20 have. Evaluations play the same
episodes in every run.</p>
<div class="charts">
$images
</div>
</html>
"""


if __name__ == "__main__":
    sys.exit(main())
