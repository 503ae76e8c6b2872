"""Ranks memory lengths by success without training, in the paper and here (Table 1)."""

from statistics import fmean

from paper.intervals import share_difference
from paper.printed import LENGTHS, ZERO_SHOT, ZERO_SHOT_MEAN
from paper.quantities import initial_evaluation
from paper.rows import PaperRow
from reports.evaluations import markdown_table
from reports.run_files import Run

ABOUT_RANKS = """
"As good here" lists the lengths whose difference from the best length has 0 in its 95 % interval
(normal, over episodes). The means are over five tasks."""
Panels = dict[int, list[tuple[float, float]]]  # length -> (success, episodes) of each task


def ranks_part(found: list[tuple[PaperRow, list[Run]]]) -> str:
    """Return the section, or "" while no task has all lengths."""
    tasks: dict[str, Panels] = {}
    for row, runs in found:
        if first := initial_evaluation(runs):
            panel = (first["eval/success"], first["eval/episodes"])
            tasks.setdefault(row.env, {})[row.memory] = [panel]
    complete = {env: panels for env, panels in tasks.items() if len(panels) == len(LENGTHS)}
    if not complete:
        return ""
    head = ["", *map(str, LENGTHS), "best in the paper", "best here", "as good here"]
    rows = [_length_row(env, panels, ZERO_SHOT.get(env)) for env, panels in complete.items()]
    if len(complete) == len({row.env for row, _ in found}):
        together = {n: [panels[n][0] for panels in complete.values()] for n in LENGTHS}
        rows.append(_length_row("mean", together, ZERO_SHOT_MEAN))
    return f"## Which lengths are best?\n\n{markdown_table([head, *rows])}\n{ABOUT_RANKS}"


def _length_row(label: str, panels: Panels, paper: dict | None) -> list[str]:
    means = {n: fmean(share for share, _ in panels[n]) for n in LENGTHS}
    best = max(LENGTHS, key=means.get)
    as_good = [n for n in LENGTHS if share_difference(panels[best], panels[n])[1] <= 0]
    theirs = str(max(LENGTHS, key=lambda n: paper[n].value)) if paper else "-"
    shares = [f"{means[n]:.3f}" for n in LENGTHS]
    others = " ".join(str(n) for n in as_good if n != best)
    return [label, *shares, theirs, str(best), others or "-"]
