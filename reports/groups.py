"""Groups runs that differ only in their seeds, and labels each group by its settings."""

import json
from dataclasses import dataclass
from pathlib import Path

from reports.run_files import Run


@dataclass
class Group:
    label: str
    runs: list[Run]


def group_runs(runs: list[Run]) -> list[Group]:
    """Group runs with equal settings. A label names the settings that distinguish the group."""
    groups = {}
    for run in runs:
        groups.setdefault(json.dumps(run.settings, sort_keys=True), []).append(run)
    firsts = [group[0] for group in groups.values()]
    names = distinguishing(firsts)
    return [Group(_label(group, names, firsts), group) for group in groups.values()]


def differing(runs: list[Run]) -> list[str]:
    """Return the names of settings that differ between runs, or that some runs lack."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return [n for n in names if len({repr(run.settings.get(n, ...)) for run in runs}) > 1]


def distinguishing(runs: list[Run]) -> list[str]:
    """Return a few settings that distinguish all runs: the environment, then greedily the setting
    that splits the runs into the most classes."""
    names = differing(runs)
    chosen = ["env_name"] if "env_name" in names else []
    while _classes(runs, chosen) < _classes(runs, names):
        chosen.append(max(names, key=lambda name: _classes(runs, [*chosen, name])))
    return chosen


def _classes(runs: list[Run], names: list[str]) -> int:
    """Return how many different values these settings have."""
    return len({repr([run.settings.get(name, ...) for name in names]) for run in runs})


def shown_value(name: str, run: Run, runs: list[Run]) -> str:
    """Return the text of a setting. Paths are cut to their last part if these are distinct."""
    texts = {str(other.settings.get(name, "-")) for other in runs}
    text = str(run.settings.get(name, "-"))
    if isinstance(run.settings.get(name), dict):  # prompts are long
        return f"{text[:36]} ..." if len(text) > 40 else text
    short = {Path(each).name for each in texts}
    return Path(text).name if len(short) == len(texts) and text.startswith(("/", ".")) else text


def _label(group: list[Run], names: list[str], runs: list[Run]) -> str:
    """Return the distinguishing settings, or else the environment, and the number of seeds."""
    parts = [
        shown_value(name, group[0], runs) if name == "env_name" else
        f"{name} {shown_value(name, group[0], runs)}" for name in names
    ]  # fmt: skip
    label = ", ".join(parts) or str(group[0].settings.get("env_name", "-"))
    return label + f" ({len(group)} seeds)" * (len(group) > 1)
