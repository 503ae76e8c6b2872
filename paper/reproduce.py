"""Reproduces the paper's tables and figures: makes the runs, then writes a Markdown page.

    python -m paper.reproduce table1|table2|table3|figure3|figure4|figure5|claims|
        babaisai|generalisation|many-tasks|critic|estimators|ablations|long-episodes|
        trust-regions|memories
        [--scale paper|embedded] [--dry-run] [--seeds 1 2 3] [--only NAME ...] [--runs DIR]
        [--out DIR] [-- FLAGS OF main.py]

Runs are processes, one after another. Finished runs are skipped and interrupted runs are resumed,
so after an interruption the same command does the rest. To use two cores, start it twice with
different --seeds (table1: --only), then once more with all seeds for the page. `tables` defines the
runs, and `results` writes the page. Comparisons beyond the paper, of estimators and parts of our
method, are in `comparisons`, `compare` and `compared`.
"""

import argparse
import shlex
import sys
from pathlib import Path

from common.plugins import UserError
from paper.claims import CLAIMS
from paper.compare import run_comparison
from paper.comparisons import COMPARISONS
from paper.critics import plan_critics, write_critics
from paper.generalisation import plan_generalisation, write_generalisation
from paper.many_tasks import plan_many_tasks, write_many_tasks
from paper.results import write_results
from paper.rows import SCALES, PaperTable, flags_of, seeds_of
from paper.runs import (
    BASE,
    IS_REPOSITORY,
    PlannedRun,
    choose_runs,
    command_of,
    flag_words,
    perform,
    planned_run,
    read_run,
    relative,
)
from paper.tables import TABLES
from reports.drawing import import_figure
from reports.program import Program

RUNS_FOLDER = BASE / "runs" / "reproduce"
PAPER_PAGES = TABLES | {"claims": CLAIMS}
OWN_PAGES = {  # which runs there are, and what writes the page of those that are finished
    "generalisation": (plan_generalisation, write_generalisation),
    "many-tasks": (plan_many_tasks, write_many_tasks),
    "critic": (plan_critics, write_critics),
}


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    at = words.index("--") if "--" in words else len(words)

    def work(args: argparse.Namespace) -> int:
        return reproduce(args, extra_flags(words[at + 1 :], args.runs))

    return make_program().run(work, words[:at])


def make_program() -> Program:
    program = Program(
        prog="paper.reproduce",
        description="Reproduce a table or figure of the paper. Flags after -- go to main.py.",
    )
    add = program.add_argument
    add(
        "name",
        choices=[*PAPER_PAGES, *OWN_PAGES, *COMPARISONS],
        help="the table, figure or comparison",
    )
    add("--scale", choices=SCALES, default="embedded", help="models (default: embedded)")
    add("--dry-run", action="store_true", help="print the commands and do nothing else")
    seeds = "training seeds (default: 1 to 3, embedded models 1 to 5)"
    add("--seeds", type=int, nargs="+", help=seeds)
    add("--only", nargs="+", default=[], help="make only these runs (names, or parts of names)")
    add(
        "--runs",
        type=Path,
        default=RUNS_FOLDER,
        help="run directories (default: runs/reproduce)",
    )
    add("--out", type=Path, help="directory of the page (default: docs/results, or else --runs)")
    return program


def out_folder(args: argparse.Namespace) -> Path:
    """Return --out or its default. Only the standard runs belong into docs/results."""
    standard = args.runs.resolve() == RUNS_FOLDER and IS_REPOSITORY
    return args.out or (BASE / "docs" / "results" if standard else args.runs)


def extra_flags(words: list[str], runs: Path) -> dict:
    """Parse `--name value`, `--name=value` and `--name` into a dict.

    UserError: a word belongs to no flag, this program sets the flag, or the runs would mix with the
    standard runs.
    """
    flags, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            flags[name] = value if equals else True
        elif name and flags[name] is True:
            flags[name] = word
        else:
            raise UserError(f"{word!r} after -- is not a flag of main.py")
    for name in ("run_dir", "resume", "env_name", "seed", "eval_only"):
        if name in flags:
            raise UserError(f"{flag_words({name: True})[0]} cannot be given after --")
    if flags and runs.resolve() == RUNS_FOLDER:
        raise UserError("flags after -- change the runs: name another directory with --runs")
    return flags


def reproduce(args: argparse.Namespace, extra: dict) -> int:
    """Make the missing runs and write the page. Returns the exit code."""
    if args.name in COMPARISONS:
        if not args.dry_run:
            check_machine(args.scale, True, [out_folder(args), args.runs])
        # Several processes may share the seeds; each writes the page for all seeds.
        everything = argparse.Namespace(**vars(args) | {"seeds": None})
        return run_comparison(args, extra, out_folder(args), made_by(everything, extra))
    table, out = PAPER_PAGES.get(args.name), out_folder(args)
    plan, write = OWN_PAGES.get(args.name, (None, None))
    if plan:
        planned = plan(args.scale, runs_folder(args), args.seeds, extra)
    else:
        planned = plan_runs(args, table, extra)
    chosen = choose_runs(planned, args.only, args.name)
    commands = [command_of(run) for run in chosen]  # find conflicts before the first run
    if not args.dry_run:
        drawn = args.name == "critic" or table and (table.pictures or table.scenes)
        check_machine(args.scale, bool(drawn), [out, args.runs])
    code = 0
    for number, (run, words) in enumerate(zip(chosen, commands, strict=True), 1):
        code = perform(run, words, f"{number}/{len(chosen)}", args.dry_run)
        if code:
            break
    if args.dry_run:
        return 0
    path = out / f"{args.name}-{args.scale}.md"
    about = f"{SCALES[args.scale]['about']}. {made_by(args, extra)}"
    if write:
        write(path, about, planned)
    else:
        write_results(path, table, about, [(r.row, r.seed, read_run(r.path)) for r in planned])
    print(path)
    return code


def runs_folder(args: argparse.Namespace) -> Path:
    return args.runs.resolve() / args.scale


def plan_runs(args: argparse.Namespace, table: PaperTable, extra: dict) -> list[PlannedRun]:
    """Return all runs of a table, ordered by seed, so that partial results have all rows."""
    folder = runs_folder(args)
    # the initial model needs one seed
    seeds = seeds_of(args.scale, args.seeds) if table.trained else [1]
    planned = [
        planned_run(folder, row, seed, flags_of(args.scale, table, row, seed) | extra)
        for row in table.rows for seed in seeds
    ]  # fmt: skip
    return sorted(planned, key=lambda run: run.seed)


def made_by(args: argparse.Namespace, extra: dict) -> str:
    words = ["python", "-m", "paper.reproduce", args.name, "--scale", args.scale]
    if args.seeds:
        words += ["--seeds", *map(str, args.seeds)]
    if extra:
        words += ["--runs", relative(args.runs.resolve()), "--", *flag_words(extra)]
    return f"Made by `{shlex.join(words)}`; --dry-run prints the commands of the runs"


def check_machine(scale: str, pictures: bool, folders: list[Path]) -> None:
    """Raise UserError or OSError for problems that would otherwise show only after hours."""
    if scale == "paper":
        import torch  # here, because a dry run need not wait for it

        if not torch.cuda.is_available():
            raise UserError("--scale paper needs a CUDA device; --dry-run prints its commands")
    if pictures:
        import_figure()
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
