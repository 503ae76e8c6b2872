"""Reads the directories of runs and finds which runs belong together.

Runs that differ in nothing but their seeds form one group. Files or lines that are missing or torn
(a killed run may leave half a line) are left out, and one line in `notes` says so.
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

# Runs of one group may differ in these; only older runs have those of the last line.
NOT_SETTINGS = "seed run_dir resume override skip_first_eval defaults".split()
NOT_SETTINGS += "env_workers env_threads env_timeout".split()
NOT_SETTINGS += "report export keep_checkpoints max_env_faults max_skipped_steps".split()
EVALUATION = "update eval/success eval/success_low eval/success_high eval/return eval/return_stderr"


@dataclass
class Run:
    """What a run's directory holds. Rows are the objects of a .jsonl file, finite numbers only."""

    name: str
    settings: dict
    seed: int
    commit: str
    turns: int  # per update
    metrics: list[dict[str, float]]
    evals: list[dict[str, float]]
    warmup: list[dict[str, float]]

    @property
    def own_evals(self) -> list[dict[str, float]]:
        """Without those that somebody asked for later: their settings may be others."""
        return [e for e in self.evals if not e.get("asked")]

    def curve(self, metric: str) -> dict[int, float]:
        """Training turns -> value, for the updates that have one."""
        return {row["turns"]: row[metric] for row in self.metrics if metric in row}

    def turns_after(self, update: int) -> float:
        """Training turns in the first `update` updates; batches of whole episodes differ."""
        made = {row["update"]: row["turns"] for row in self.metrics if "update" in row}
        return made.get(update, update * self.turns)

    def minutes(self) -> dict[str, float]:
        """Part of the run -> minutes spent in it."""
        total = lambda rows, name: sum(row.get(f"time/{name}", 0.0) for row in rows) / 60
        inside = {n: total(self.metrics, n) for n in ("collect", "score", "update", "push")}
        other = max(0.0, total(self.metrics, "total") - sum(inside.values()))
        warmup, evals = total(self.warmup, "total"), total(self.evals, "total")
        return {"warm-up": warmup, **inside, "eval": evals, "other": other}


@dataclass
class Group:
    label: str
    runs: list[Run]


def read_runs(paths: list[Path], notes: list[str]) -> list[Run]:
    """Each run once, named by the shortest paths that tell them apart. Problems go to `notes`."""
    paths = list(dict.fromkeys(path.resolve() for path in paths))
    there = [path for path in paths if (path / "args.json").exists()] or paths
    above = os.path.commonpath([path.parent for path in there])
    runs = [_read_run(path, os.path.relpath(path, above), notes) for path in paths]
    return [run for run in runs if run is not None]


def facts_of(path: Path) -> list[tuple[str, str]]:
    """Name and text of what a reader first asks about a run; nothing where there is no run."""
    found = read_runs([path], [])
    if not found:
        return []
    [run], get = found, found[0].settings.get
    facts = {
        "environment": get("env_name"),
        "model": Path(str(get("model"))).name,
        "advantages": get("advantages", "dual-gae"),
        "batch": f"{get('n_env')} x {get('e_len')} turns",
        "seed": run.seed,
        "updates": f"{len(run.metrics)} of {get('num_updates')}",
    }
    if run.evals:
        ends = dict.fromkeys((run.evals[0]["update"], run.evals[-1]["update"]))
        last = {e["update"]: e["eval/success"] for e in run.evals}
        facts["success"] = ", ".join(f"{last[u]:.3f} (update {u:.0f})" for u in ends)
    return [(name, str(value)) for name, value in facts.items()] + [("commit", run.commit)]


def _read_run(path: Path, name: str, notes: list[str]) -> Run | None:
    name = name.encode("utf-8", "replace").decode()  # file names need not be valid Unicode
    rows = lambda file, needs: _read_rows(path / file, needs.split(), f"{name}/{file}", notes)
    try:
        about = json.loads((path / "args.json").read_text(encoding="utf-8"))
        args, commit = dict(about["args"]), str(about["git"] or "-")
        seed, turns = int(args["seed"]), int(args["n_env"]) * int(args["e_len"])
    except (OSError, ValueError, KeyError, TypeError):
        notes.append(f"{name}: left out, no args.json of a run is there")
        return None
    if args.get("kl_horizon") == 10000:  # a flag of older runs, and now this constant
        del args["kl_horizon"]
    return Run(
        name,
        {key: value for key, value in args.items() if key not in NOT_SETTINGS},
        seed,
        commit[:7] + "-dirty" * commit.endswith("-dirty"),
        turns,
        rows("metrics.jsonl", "turns"),
        rows("eval.jsonl", EVALUATION),
        rows("warmup.jsonl", "") if args.get("w_epoch") else [],
    )


def _read_rows(path: Path, needs: list[str], label: str, notes: list[str]) -> list[dict]:
    """The finite numbers of each object in a .jsonl file, where all keys in `needs` have one."""
    try:
        lines = read_jsonl(path)
    except OSError as error:
        notes.append(f"{label}: {error.strerror}")
        return []
    finite = lambda value: isinstance(value, int | float) and math.isfinite(value)
    rows = [{k: v for k, v in line.items() if finite(v)} for line in lines if line is not None]
    rows = [row for row in rows if row.keys() >= set(needs)]
    if len(rows) < len(lines):
        notes.append(f"{label}: {len(lines) - len(rows)} of {len(lines)} lines left out")
    return rows


def read_jsonl(path: Path) -> list[dict | None]:
    """The objects of a .jsonl file, None for a line without one. NaN and Infinity become None."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").strip().splitlines():
        try:
            value = json.loads(line, parse_constant=lambda name: None)
        except ValueError:
            value = None
        lines.append(value if isinstance(value, dict) else None)
    return lines


def group_runs(runs: list[Run]) -> list[Group]:
    """Runs with equal settings become one group, labelled with what sets it apart."""
    groups = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    firsts = [group[0] for group in groups.values()]
    names = telling(firsts)
    return [Group(_label(group, names, firsts), group) for group in groups.values()]


def differing(runs: list[Run]) -> list[str]:
    """Names of the settings that differ between runs, or that some runs do not have."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [n for n in names if len({repr(run.settings.get(n, ...)) for run in runs}) > 1]


def telling(runs: list[Run]) -> list[str]:
    """The few of the differing settings that tell all these runs apart: first the environment, then
    each time the one that splits the most."""
    names = differing(runs)
    chosen = ["env_name"] if "env_name" in names else []
    classes = lambda some: len({repr([run.settings.get(n, ...) for n in some]) for run in runs})
    while classes(chosen) < classes(names):
        chosen.append(max(names, key=lambda name: classes([*chosen, name])))
    return chosen


def shown_value(name: str, run: Run, runs: list[Run]) -> str:
    """The text of a setting; of a path its last part, if this tells the runs apart as well."""
    texts = {str(other.settings.get(name, "-")) for other in runs}
    text = str(run.settings.get(name, "-"))
    if isinstance(run.settings.get(name), dict):  # prompts are long
        return f"{text[:36]} ..." if len(text) > 40 else text
    short = {Path(each).name for each in texts}
    return Path(text).name if len(short) == len(texts) and text.startswith(("/", ".")) else text


def _label(group: list[Run], names: list[str], runs: list[Run]) -> str:
    """What tells the group apart, or else its environment, and how many runs it is of."""
    parts = [
        shown_value(name, group[0], runs) if name == "env_name" else
        f"{name} {shown_value(name, group[0], runs)}" for name in names
    ]  # fmt: skip
    label = ", ".join(parts) or str(group[0].settings.get("env_name", "-"))
    return label + f" ({len(group)} seeds)" * (len(group) > 1)
