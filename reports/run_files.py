"""Reads run directories.

Missing files and damaged lines (a killed run may leave half a line) are skipped, with a line in
`notes`.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from common.run_file import is_finite, read_jsonl, read_text

# Runs of one group may differ in these flags. Only older runs have those of the last two lines.
NOT_SETTINGS = {
    "seed", "run_dir", "resume", "eval_interval", "defaults", "env_workers",
    "skip_first_eval", "env_threads", "env_timeout",
    "report", "export", "keep_checkpoints", "max_env_faults", "max_skipped_steps",
}  # fmt: skip
REQUIRED_METRICS = {"turns"}
REQUIRED_EVALUATION = {
    "update", "eval/success", "eval/success_low", "eval/success_high", "eval/return",
    "eval/return_stderr",
}  # fmt: skip

REQUIRED_OUTCOMES = {"update", "success", "return"}


@dataclass
class Run:
    """The contents of a run directory. Rows are objects of a .jsonl file, finite numbers only."""

    name: str
    settings: dict
    seed: int
    commit: str
    turns: int  # per update
    metrics: list[dict[str, float]]
    evals: list[dict[str, float]]
    warmup: list[dict[str, float]]
    outcomes: list[dict] = field(default_factory=list)  # of each own evaluation: its episodes

    @property
    def own_evals(self) -> list[dict[str, float]]:
        """Evaluations by the run itself. Later ones (--resume RUN --eval-only) may have other
        settings; those of a run that only evaluates are all its own."""
        if self.settings.get("eval_only"):
            return self.evals
        return [e for e in self.evals if not e.get("asked")]

    def curve(self, metric: str) -> dict[int, float]:
        """Map training turns to values, for the updates that have one."""
        return {row["turns"]: row[metric] for row in self.metrics if metric in row}

    def turns_after(self, update: int) -> float:
        """Return the training turns of the first `update` updates. Batch sizes may vary."""
        made = {row["update"]: row["turns"] for row in self.metrics if "update" in row}
        return made.get(update, update * self.turns)

    def minutes(self) -> dict[str, float]:
        """Map each phase of the run to its minutes."""
        phases = {n: _minutes(self.metrics, n) for n in ("collect", "score", "update", "push")}
        other = max(0.0, _minutes(self.metrics, "total") - sum(phases.values()))
        warmup, evals = _minutes(self.warmup, "total"), _minutes(self.evals, "total")
        return {"warm-up": warmup, **phases, "eval": evals, "other": other}


def _minutes(rows: list[dict[str, float]], phase: str) -> float:
    return sum(row.get(f"time/{phase}", 0.0) for row in rows) / 60


def read_runs(paths: list[Path], notes: list[str]) -> list[Run]:
    """Return each run once, named by its shortest distinct path. Adds problems to `notes`."""
    paths = list(dict.fromkeys(path.resolve() for path in paths))
    present = [path for path in paths if (path / "args.json").exists()] or paths
    base = os.path.commonpath([path.parent for path in present])
    runs = [_read_run(path, os.path.relpath(path, base), notes) for path in paths]
    return [run for run in runs if run is not None]


def facts_of(path: Path) -> list[tuple[str, str]]:
    """Return (name, text) of a run's main facts, [] if there is no run."""
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
    if evals := run.own_evals:
        ends = dict.fromkeys((evals[0]["update"], evals[-1]["update"]))
        last = {e["update"]: e["eval/success"] for e in evals}
        facts["success"] = ", ".join(f"{last[u]:.3f} (update {u:.0f})" for u in ends)
    return [(name, str(value)) for name, value in facts.items()] + [("commit", run.commit)]


def _read_run(path: Path, name: str, notes: list[str]) -> Run | None:
    name = name.encode("utf-8", "replace").decode()  # file names may be invalid Unicode

    def rows(file: str, required: set[str]) -> list[dict]:
        return _read_rows(path / file, required, f"{name}/{file}", notes)

    try:
        about = json.loads(read_text(path / "args.json"))
        args, commit = dict(about["args"]), str(about["git"] or "-")
        seed, turns = int(args["seed"]), int(args["n_env"]) * int(args["e_len"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        notes.append(f"{name}: skipped, it has no valid args.json")
        return None
    if args.get("kl_horizon") == 10000:  # a flag of older runs, and now this constant
        del args["kl_horizon"]
    return Run(
        name,
        {key: value for key, value in args.items() if key not in NOT_SETTINGS},
        seed,
        commit[:7] + "-dirty" * commit.endswith("-dirty"),
        turns,
        rows("metrics.jsonl", REQUIRED_METRICS),
        rows("eval.jsonl", REQUIRED_EVALUATION),
        rows("warmup.jsonl", set()) if args.get("w_epoch") else [],
        _read_outcomes(path / "eval_episodes.jsonl"),
    )


def _read_outcomes(path: Path) -> list[dict]:
    """Return the run's own lines of eval_episodes.jsonl, [] for an older run, which has none."""
    lines = read_jsonl(path) if path.exists() else []
    whole = [line for line in lines if line and line.keys() >= REQUIRED_OUTCOMES]
    return [line for line in whole if not line.get("asked")]


def _read_rows(path: Path, required: set[str], label: str, notes: list[str]) -> list[dict]:
    """Return the finite numbers of each object in a .jsonl file that has all required keys."""
    try:
        lines = read_jsonl(path)
    except OSError as error:
        notes.append(f"{label}: {error.strerror}")
        return []
    rows = [{k: v for k, v in line.items() if is_finite(v)} for line in lines if line is not None]
    rows = [row for row in rows if row.keys() >= required]
    if len(rows) < len(lines):
        notes.append(f"{label}: skipped {len(lines) - len(rows)} of {len(lines)} lines")
    return rows
