"""What the directories of runs hold: their curves, and which runs belong together.

Runs that differ in nothing but the seed are one group, with a mean and a spread. Read are
args.json, metrics.jsonl, eval.jsonl and warmup.jsonl; what is missing or torn (the last line of a
killed run) is left out and noted in one line. `ppo.reports.page` draws them.
"""

import json
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

NOT_SETTINGS = "seed run_dir resume override skip_first_eval".split()  # same group, whatever these
PANEL = "update eval/success eval/success_low eval/success_high eval/return eval/return_stderr"


@dataclass
class Run:
    """metrics, evals, warmup: the objects of the .jsonl files, without what is no finite number."""

    name: str
    settings: dict
    seed: int
    commit: str
    turns: int  # of an update
    metrics: list[dict[str, float]]
    evals: list[dict[str, float]]
    warmup: list[dict[str, float]]

    def curve(self, metric: str) -> dict[int, float]:
        """Training turns -> value, where there is one."""
        return {m["turns"]: m[metric] for m in self.metrics if metric in m}

    def minutes(self) -> dict[str, float]:
        """Where its time went."""
        total = lambda rows, name: sum(row.get(f"time/{name}", 0.0) for row in rows) / 60
        inside = {n: total(self.metrics, n) for n in ("collect", "score", "update", "push")}
        return {
            "warm-up": total(self.warmup, "total"),
            **inside,
            "eval": total(self.evals, "total"),
            "other": max(0.0, total(self.metrics, "total") - sum(inside.values())),
        }


@dataclass
class Group:
    label: str
    runs: list[Run]


def read_runs(paths: list[Path], notes: list[str]) -> list[Run]:
    """Every run once, under the shortest names that tell them apart; `notes` gets what is amiss."""
    paths = list(dict.fromkeys(path.resolve() for path in paths))
    there = [path for path in paths if (path / "args.json").exists()] or paths
    above = os.path.commonpath([path.parent for path in there])
    runs = [_read_run(path, os.path.relpath(path, above), notes) for path in paths]
    return [run for run in runs if run is not None]


def _read_run(path: Path, name: str, notes: list[str]) -> Run | None:
    name = name.encode("utf-8", "replace").decode()  # a file name may be no Unicode
    try:
        about = json.loads((path / "args.json").read_text())
        args, commit = dict(about["args"]), str(about["git"] or "-")
        seed, turns = int(args["seed"]), int(args["n_env"]) * int(args["e_len"])
    except (OSError, ValueError, KeyError, TypeError):
        notes.append(f"{name}: left out, no args.json of a run is there")
        return None
    return Run(
        name,
        {key: value for key, value in args.items() if key not in NOT_SETTINGS},
        seed,
        commit[:7] + "-dirty" * commit.endswith("-dirty"),
        turns,
        _read_rows(path, "metrics.jsonl", "turns", name, notes),
        _read_rows(path, "eval.jsonl", PANEL, name, notes),
        _read_rows(path, "warmup.jsonl", "", name, notes) if args.get("w_epoch") else [],
    )


def _read_rows(path: Path, file: str, needs: str, name: str, notes: list[str]) -> list[dict]:
    """The objects of a .jsonl file that have the numbers it `needs`."""
    try:
        lines = (path / file).read_text(errors="replace").strip().splitlines()
    except OSError as error:
        notes.append(f"{name}/{file}: {error.strerror}")
        return []
    rows = []
    for line in lines:
        try:
            row = {k: v for k, v in json.loads(line).items() if _is_number(v)}
        except (ValueError, AttributeError):
            continue
        if all(key in row for key in needs.split()):
            rows.append(row)
    if len(rows) < len(lines):
        notes.append(f"{name}/{file}: {len(lines) - len(rows)} of {len(lines)} lines left out")
    return rows


def _is_number(value) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def group_runs(runs: list[Run]) -> list[Group]:
    """Runs that differ in nothing but their seeds, labelled with what tells the groups apart."""
    groups = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    names = differing(runs)
    return [Group(_label(group, names), group) for group in groups.values()]


def differing(runs: list[Run]) -> list[str]:
    """Names of the settings that are not the same in all runs, or not there in all of them."""
    shown = lambda name: {json.dumps(r.settings.get(name)) + "?" * (name not in r.settings)
                          for r in runs}  # fmt: skip
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [name for name in names if len(shown(name)) > 1]


def _label(group: list[Run], names: list[str], most: int = 3) -> str:
    """The environment, what differs (the first few), the seeds."""
    settings = group[0].settings
    differs = [f"{name} {settings.get(name, '-')}" for name in names if name != "env_name"]
    if len(differs) > most:
        differs[most:] = [f"{len(differs) - most} more"]
    seeds = " ".join(str(seed) for seed in sorted(run.seed for run in group))
    words = "seeds" if len(group) > 1 else "seed"
    return ", ".join([str(settings.get("env_name", "-")), *differs, f"{words} {seeds}"])


def mean_and_spread(curves: list[dict[int, float]]) -> list[tuple[int, float, float, float]]:
    """(turns, mean m, m - s, m + s) over the curves that have a value there. s is the standard
    deviation, with n - 1 in it; 0 for a single curve."""
    points = []
    for turns in sorted({turns for curve in curves for turns in curve}):
        values = [curve[turns] for curve in curves if turns in curve]
        mean = statistics.fmean(values)
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        points.append((turns, mean, mean - spread, mean + spread))
    return points
