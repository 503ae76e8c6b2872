"""Learning curves of runs, as PNG and as one HTML page that needs nothing else.

    python -m ppo.reports.page RUN [RUN ...] [--out DIR]

Runs of the same settings and different seeds are drawn as one. What is read and what belongs
together is in `curves`, the pictures are in `charts`; here are the program and the page.
"""

import argparse
import base64
import sys
from html import escape
from pathlib import Path
from string import Template

from ppo.reports.charts import colour_of, draw
from ppo.reports.curves import Group, Run, differing, group_runs, read_runs


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ppo.reports.page", description="Learning curves of runs."
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="a run's directory")
    parser.add_argument("--out", type=Path, default=Path("runs/report"), help="%(default)s")
    args = parser.parse_args(argv)
    try:
        print(make_report(args.runs, args.out))
    except (ValueError, OSError) as error:
        print(f"ppo.reports.page: error: {error}", file=sys.stderr)
        return 2
    return 0


def make_report(paths: list[Path], out: Path) -> Path:
    """Write the pictures and index.html, whose path is returned.

    ValueError: no run among the paths, or no matplotlib; OSError: `out` cannot be written
    """
    notes = []
    groups = group_runs(read_runs(paths, notes))
    for note in notes:
        print(note)
    if not groups:
        raise ValueError("none of these is the directory of a run")
    out.mkdir(parents=True, exist_ok=True)
    pictures = draw(groups)
    for name, png in pictures.items():
        (out / f"{name}.png").write_bytes(png)
    html = page(groups, pictures, notes).encode("utf-8", "replace")
    (out / "index.html").write_bytes(html)
    return out / "index.html"


def page(groups: list[Group], pictures: dict[str, bytes], notes: list[str]) -> str:
    """HTML. Whatever comes from a run is escaped; the pictures are inside."""
    image = '<img alt="{}" src="data:image/png;base64,{}">'
    images = [image.format(n, base64.b64encode(png).decode()) for n, png in pictures.items()]
    rows = [_row(run, colour_of(i)) for i, group in enumerate(groups) for run in group.runs]
    return Template(PAGE).substitute(
        runs=_table(
            ["run", "seed", "commit", "updates", "success before", "after", "minutes"], rows
        ),
        differences=_differences(groups),
        notes="".join(f"<li>{escape(note)}</li>" for note in notes),
        images="\n".join(images),
    )


def _row(run: Run, colour: str) -> list[str]:
    before = [e for e in run.evals if e["update"] == 0][-1:]
    after = [e for e in run.evals if e["update"] > 0][-1:]
    form = "{eval/success:.3f} [{eval/success_low:.3f}, {eval/success_high:.3f}]"
    said = lambda evals, more="": (form + more).format_map(evals[0]) if evals else "-"
    return [
        SQUARE.format(colour) + escape(run.name),
        str(run.seed),
        escape(run.commit),
        f"{len(run.metrics)} of {escape(str(run.settings.get('num_updates', '-')))}",
        said(before),
        said(after, " ({update:.0f} updates)"),
        f"{sum(run.minutes().values()):.1f}",
    ]


def _differences(groups: list[Group]) -> str:
    """A table of the settings that the groups do not share."""
    runs = [group.runs[0] for group in groups]
    head = [SQUARE.format(colour_of(i)) + escape(group.label) for i, group in enumerate(groups)]
    value = lambda run, name: escape(str(run.settings.get(name, "-")))
    rows = [[escape(name), *(value(run, name) for run in runs)] for name in differing(runs)]
    return _table(["what differs", *head], rows) if rows else ""


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Of cells that are HTML."""
    line = lambda cells, tag: f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


SQUARE = '<b style="color:{}">&#9632;</b> '
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
<p>A line is the mean over the runs of a colour, its band one standard deviation over them.
In training, success and return are those of the last 100 episodes; an evaluation plays the same
episodes in every run.</p>
<div class="charts">
$images
</div>
</html>
"""


if __name__ == "__main__":
    sys.exit(main())
