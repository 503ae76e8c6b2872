"""Compares two evaluations episode by episode: all runs play the same ones, with the same noise.

What makes an episode easy or hard is then the same on both sides and cancels, so these intervals
are narrower than those of two separate shares.
"""

import math

from common.student import mean_interval, t_quantile
from reports.run_files import Run

ABOUT_PAIRS = (
    "Differences of the same episodes, with 95 % intervals. Success: the interval of paired shares "
    "by Agresti and Min (2005). Return: the paired t interval."
)
HEAD = ["", "success", "won, only after", "won, only before", "return", "episodes"]
Outcomes = dict[str, list[float]]  # "success" and "return": a number for each episode


def pairs_table(runs: list[Run]) -> list[list[str]]:
    """Return the header, and a row for each run: its last evaluation after its first. Two runs of
    one environment have a third row, the last of the second after that of the first."""
    rows = [_row(f"{run.name}: {_when(run)}", run.outcomes[0], run.outcomes[-1])
            for run in runs if len(run.outcomes) > 1]  # fmt: skip
    if len(runs) == 2 and len({run.settings.get("env_name") for run in runs}) == 1:
        one, other = runs
        if one.outcomes and other.outcomes:
            label = f"{other.name} (after) and {one.name} (before)"
            rows.append(_row(label, one.outcomes[-1], other.outcomes[-1]))
    return [HEAD, *rows]


def _when(run: Run) -> str:
    first, last = run.outcomes[0]["update"], run.outcomes[-1]["update"]
    return f"{last:.0f} updates after {first:.0f}"


def _row(label: str, before: Outcomes, after: Outcomes) -> list[str]:
    # Episode k has the same seed in every run, so evaluations of two sizes share the first ones.
    count = min(len(before["success"]), len(after["success"]))
    had, has = before["success"][:count], after["success"][:count]
    gained = sum(b > a for a, b in zip(had, has, strict=True))
    lost = sum(a > b for a, b in zip(had, has, strict=True))
    returns = [b - a for a, b in zip(before["return"], after["return"], strict=False)]
    paid = _text(mean_interval(returns)) if count > 1 else "-"
    return [
        label,
        _text(share_change(gained, lost, count)),
        str(gained),
        str(lost),
        paid,
        str(count),
    ]


def _text(found: tuple[float, float, float]) -> str:
    mean, low, high = found
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def share_change(gained: int, lost: int, count: int) -> tuple[float, float, float]:
    """Return the change of a share of `count` paired trials, (mean, low, high).

    gained, lost: pairs that succeed only after and only before. Half a pair is added to each of the
    four outcomes, so that the interval has a width where no pair differs (Agresti and Min 2005).
    """
    n, more, less = count + 2, gained + 0.5, lost + 0.5
    centre = (more - less) / n
    half = t_quantile(math.inf) * math.sqrt((more + less) / n - centre**2) / math.sqrt(n)
    return (gained - lost) / count, centre - half, centre + half
