"""Draws the learning curves of runs: PNG files and one self-contained HTML page.

    python -m reports.curves RUN [RUN ...] [--out DIR]

Runs that differ only in their seeds form one curve. `run_files` reads the runs, `groups` groups
them, `charts` draws them, `finals` makes the tables, and this file writes the page.
"""

import base64
import sys
from html import escape
from pathlib import Path
from string import Template

from common.plugins import UserError
from common.run_file import rewritten
from reports.charts import draw_charts
from reports.drawing import svg_of
from reports.finals import differences, each_run, final_numbers, labelled
from reports.groups import Group, group_runs
from reports.pairs import ABOUT_PAIRS, pairs_table
from reports.program import Program
from reports.run_files import Run, read_runs


def main(argv: list[str] | None = None) -> int:
    program = Program(prog="reports.curves", description="Draw the learning curves of runs.")
    program.add_runs()
    default = Path("runs/report")
    program.add_argument("--out", type=Path, default=default, help="directory (%(default)s)")
    return program.run(lambda args: print(write_curves(args.runs, args.out)), argv)


def write_curves(paths: list[Path], out: Path) -> Path:
    """Write the charts and index.html into `out`, and return the path of index.html.

    UserError: no path is a run, or matplotlib is missing. OSError: `out` cannot be written.
    """
    notes = []
    groups = group_runs(read_runs(paths, notes))
    for note in notes:
        print(note)
    if not groups:
        raise UserError("none of these is a run directory")
    out.mkdir(parents=True, exist_ok=True)
    for name, png in draw_charts(groups).items():
        write_bytes(out / f"{name}.png", png)
    html = curves_page(groups, draw_charts(groups, svg_of), notes).encode("utf-8", "replace")
    write_bytes(out / "index.html", html)
    return out / "index.html"


def write_bytes(path: Path, content: bytes) -> None:
    with rewritten(path, "wb") as file:
        file.write(content)


def curves_page(groups: list[Group], charts: dict[str, bytes], notes: list[str]) -> str:
    """Return the HTML with the charts (SVG) embedded. All text from the runs is escaped."""
    names = {str(run.settings.get("env_name", "-")) for group in groups for run in group.runs}
    image = '<img alt="{}" src="data:image/svg+xml;base64,{}">'
    images = [image.format(n, base64.b64encode(svg).decode()) for n, svg in charts.items()]
    return Template(TEMPLATE).substitute(
        style=STYLE,
        title=escape("Learning curves" + f": {min(names)}" * (len(names) == 1)),
        finals=html_table(final_numbers(groups)),
        pairs=paired_part([run for group in groups for run in group.runs]),
        runs=folded("each run", each_run(groups)),
        differences=folded("all settings that differ", differences(groups)),
        notes="".join(f"<li>{escape(note)}</li>" for note in notes),
        key="".join(f"<li>{labelled(group.label, i)}</li>" for i, group in enumerate(groups)),
        images="\n".join(images),
    )


def paired_part(runs: list[Run]) -> str:
    """Return the table of evaluations compared episode by episode, "" without two of them."""
    rows = [[escape(cell) for cell in row] for row in pairs_table(runs)]
    return f"{html_table(rows)}<p>{ABOUT_PAIRS}</p>" if len(rows) > 1 else ""


def folded(title: str, rows: list[list[str]]) -> str:
    """Return a collapsed table, or "" if it has only a header."""
    if len(rows) < 2:
        return ""
    return f"<details><summary>{title}</summary>{html_table(rows)}</details>"


def html_table(rows: list[list[str]]) -> str:
    """Return an HTML table. The cells are HTML already, and the first row is the header."""
    header, *others = rows
    body = _table_row(header, "th") + "".join(_table_row(row, "td") for row in others)
    return f'<div class="wide"><table>{body}</table></div>'


def _table_row(cells: list[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1b1f24; --soft: #5c6570; --line: #d9dee4 }
@media (prefers-color-scheme: dark) {
  :root { --page: #12151a; --text: #e3e7ec; --soft: #98a2ae; --line: #2d343d }
}
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5em auto; max-width: 1240px;
       padding: 0 1em; color: var(--text); background: var(--page) }
h1 { font-size: 24px; margin: 0 0 .6em; overflow-wrap: anywhere }
.wide { overflow-x: auto; margin-bottom: 1em }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: 4px 13px 4px 0; border-bottom: 1px solid var(--line);
         white-space: nowrap; vertical-align: top }
tr > :first-child { white-space: normal; min-width: min(30vw, 11em) }
th { color: var(--soft); font-weight: 600 }
summary { cursor: pointer; color: var(--soft); margin-bottom: .6em; width: fit-content }
p, ul { max-width: 75ch; color: var(--soft) }
.key { position: sticky; top: 0; z-index: 1; background: var(--page); max-width: none; margin: 0;
       padding: 8px 0; list-style: none; display: flex; flex-wrap: wrap; gap: 1px 18px;
       max-height: 30vh; overflow-y: auto; color: var(--text); font-size: 13.5px }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr));
          gap: 18px; align-items: start }
img { width: 100% }
"""
TEMPLATE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title>
<style>$style</style>
<h1>$title</h1>
$finals
$pairs
$runs
$differences
<p>A line is the mean over the runs of one colour, with a band of one standard deviation. It is
drawn wherever at least one run has a value. Training success and return are means over the last 100
finished episodes or all of a larger batch, with gaps until 20 episodes have finished. Evaluations
play the same episodes in every run. Each evaluation is a dot, with an error bar if at most 8 runs
are drawn.</p>
<ul class="key">$key</ul>
<div class="charts">
$images
</div>
<ul>$notes</ul>
</html>
"""


if __name__ == "__main__":
    sys.exit(main())
