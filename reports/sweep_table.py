"""The table of a sweep: a row per point of the grid, over its seeds.

A mean has its 95 % t interval over seeds. The last column is the difference from the first point,
paired by seed: what a seed adds to both then cancels.
"""

from common.student import mean_interval
from reports.evaluations import markdown_table

MEASURES = ("success", "return")
ABOUT = (
    "Final evaluations: means over seeds, with 95 % t intervals. Differences are from the first "
    "row, paired by seed. With several rows some interval may leave out 0 by chance."
)


def sweep_table(ends: list[tuple[str, int, dict]], planned: int) -> str:
    """Return Markdown. ends: (point, seed, final evaluation) of each finished run"""
    points = {}
    for point, seed, end in ends:
        points.setdefault(point, {})[seed] = end
    head = ["", "seeds"]
    for measure in MEASURES:
        head += [measure, "difference"]
    first = next(iter(points.values()), {})
    rows = [[point, str(len(seeds)), *cells(seeds, first)] for point, seeds in points.items()]
    missing = f"{planned - len(ends)} of {planned} runs are not finished.\n"
    table = f"{markdown_table([head, *rows])}\n\n{ABOUT}\n\n" if rows else ""
    return table + missing * (len(ends) < planned)


def cells(seeds: dict[int, dict], first: dict[int, dict]) -> list[str]:
    """Return mean and difference of each measure. seeds, first: seed -> final evaluation"""
    texts = []
    for measure in MEASURES:
        key = f"eval/{measure}"
        texts.append(mean_text([end[key] for end in seeds.values()]))
        shared = [seed for seed in seeds if seed in first] if seeds is not first else []
        differences = [seeds[seed][key] - first[seed][key] for seed in shared]
        texts.append(mean_text(differences, "+.3f"))
    return texts


def mean_text(values: list[float], form: str = ".3f") -> str:
    """Return "-", a number, or a mean with its interval."""
    if len(values) < 2:
        return f"{values[0]:{form}}" if values else "-"
    mean, low, high = mean_interval(values)
    return f"{mean:{form}} [{low:{form}}, {high:{form}}]"
