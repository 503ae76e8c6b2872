"""Keeps the numbers of finished runs in a few small files, from which pages can be drawn again.

    python -m paper.records keep [--runs DIR] [--records DIR]
    python -m paper.records restore [--runs DIR] [--records DIR]

`keep` writes a file for each directory of runs, at the same place below --records, with a line for
each finished run; the lines of other runs stay. What lies inside a run is left out. `restore` makes
run directories of those lines where there is no run, so that `paper.reproduce` skips them, and goes
on where another machine has ended. A record has no model and no checkpoint, and of the metrics only
those that pages and charts show, with six digits.
"""

import json
import sys
from pathlib import Path

from common.plugins import UserError
from common.run_file import read_jsonl, read_text, rewritten
from paper.quantities import final_evaluation
from paper.reproduce import RUNS_FOLDER
from paper.runs import BASE, read_run
from reports.program import Program

RECORDS = BASE / "docs" / "results" / "records"
FILE = "runs.jsonl"
ROWS = ("metrics.jsonl", "warmup.jsonl", "eval.jsonl")
KEPT = (  # beginnings of the names of metrics
    "update", "turns", "asked", "rollout/", "batch/", "time/", "kl/ref", "warmup/", "eval/",
    "ppo/value_loss", "ppo/entropy", "ppo/clipfrac", "ppo/explained_variance",
)  # fmt: skip
ABOUT = {"name", "args", "git", "versions"}
OF_THE_MACHINE = {"run_dir", "resume"}  # settings


def main(argv: list[str] | None = None) -> int:
    program = Program("paper.records", description=__doc__.splitlines()[0])
    add = program.add_argument
    add("action", choices=["keep", "restore"], help="write the records, or make runs of them")
    add("--runs", type=Path, default=RUNS_FOLDER, help="run directories")
    add("--records", type=Path, default=RECORDS, help="directory of the records")
    actions = {"keep": keep, "restore": restore}
    return program.run(lambda args: actions[args.action](args.runs, args.records), argv)


def keep(runs: Path, records: Path) -> None:
    """Write the records of all finished runs below `runs`. UserError: there is none"""
    found: dict[Path, dict[str, dict]] = {}
    folders = {file.parent for file in runs.rglob("args.json")}
    for path in sorted(path for path in folders if folders.isdisjoint(path.parents)):
        run = read_run(path)
        if run is not None and final_evaluation(run):
            found.setdefault(path.parent, {})[path.name] = record_of(path)
    if not found:
        raise UserError(f"{runs}: there is no finished run")
    for folder, fresh in found.items():
        file = records / folder.relative_to(runs) / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = read_records(file) | fresh
        with rewritten(file, encoding="utf-8") as out:
            out.writelines(f"{json.dumps(lines[name])}\n" for name in sorted(lines))
        print(f"{file}: {len(lines)} runs, {len(fresh)} of them from {folder}")


def restore(runs: Path, records: Path) -> None:
    """Make run directories of the records that are missing below `runs`. UserError: no records"""
    files = sorted(records.rglob(FILE))
    if not files:
        raise UserError(f"{records}: there are no records")
    for file in files:
        folder = runs / file.parent.relative_to(records)
        lines = {n: r for n, r in read_records(file).items() if not (folder / n).exists()}
        for name, record in lines.items():
            write_run(folder / name, record)
        print(f"{folder}: {len(lines)} runs restored")


def read_records(file: Path) -> dict[str, dict]:
    """Map the names of runs to their records. UserError: a line is none"""
    records = {}
    text = read_text(file, errors="replace") if file.exists() else ""
    for number, line in enumerate(text.strip().splitlines(), 1):
        try:
            record = json.loads(line)  # not read_jsonl: a setting may be infinite
            known = record.keys() >= ABOUT and Path(record["name"]).name == record["name"]
        except (ValueError, AttributeError, TypeError, RecursionError):
            known = False
        if not known:
            raise UserError(f"{file}: line {number} is no record of a run")
        records[record["name"]] = record
    return records


def record_of(path: Path) -> dict:
    """Return what is kept of a run: its settings, and the columns of its files."""
    about = json.loads(read_text(path / "args.json"))
    args = {name: value for name, value in about["args"].items() if name not in OF_THE_MACHINE}
    record = {
        "name": path.name,
        "args": args,
        "git": about["git"],
        "versions": about.get("versions"),
    }
    return record | {file: columns_of(path / file) for file in ROWS if (path / file).exists()}


def columns_of(file: Path) -> dict[str, list]:
    """Return the kept metrics of a file, a list over its lines; None where a line has none."""
    rows = [row for row in read_jsonl(file) if row is not None]
    names = dict.fromkeys(name for row in rows for name in row)
    kept = [name for name in names if name.startswith(KEPT)]
    return {name: [rounded(row.get(name)) for row in rows] for name in kept}


def rounded(value):
    return float(f"{value:.6g}") if isinstance(value, float) else value


def write_run(path: Path, record: dict) -> None:
    """Make the run directory of a record."""
    path.mkdir(parents=True)
    for file in ROWS:
        columns = record.get(file)
        if columns:
            rows = zip(*columns.values(), strict=True)
            lines = (json.dumps(dict(zip(columns, row, strict=True))) for row in rows)
            (path / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    about = {name: record[name] for name in ("args", "git", "versions")}
    (path / "args.json").write_text(json.dumps(about), encoding="utf-8")  # last: it makes a run


if __name__ == "__main__":
    sys.exit(main())
