"""Which lengths of the memory are best without training, in the paper and here: for Table 1."""

from statistics import fmean

from paper.intervals import share_difference
from paper.printed import LENGTHS, ZERO_SHOT, ZERO_SHOT_MEAN
from paper.quantities import initial_evaluation
from paper.rows import PaperRow
from reports.evaluations import markdown_table
from reports.run_files import Run

ABOUT = """
"As good here" are the lengths whose difference to the best one has 0 in its 95 % interval, the
normal one over episodes. The means are of five tasks."""
Panels = dict[int, list[tuple[float, float]]]  # length -> (success, episodes) of each task


def ranks_part(found: list[tuple[PaperRow, list[Run]]]) -> str:
    """The part of a page; "" while no task has all its lengths."""
    tasks: dict[str, Panels] = {}
    for row, runs in found:
        if first := initial_evaluation(runs):
            panel = (first["eval/success"], first["eval/episodes"])
            tasks.setdefault(row.env, {})[row.memory] = [panel]
    whole = {env: panels for env, panels in tasks.items() if len(panels) == len(LENGTHS)}
    if not whole:
        return ""
    head = ["", *map(str, LENGTHS), "best in the paper", "best here", "as good here"]
    rows = [_line(env, panels, ZERO_SHOT.get(env)) for env, panels in whole.items()]
    if len(whole) == len({row.env for row, _ in found}):
        together = {n: [panels[n][0] for panels in whole.values()] for n in LENGTHS}
        rows.append(_line("mean", together, ZERO_SHOT_MEAN))
    return f"## Which lengths are best?\n\n{markdown_table([head, *rows])}\n{ABOUT}"


def _line(label: str, panels: Panels, paper: dict | None) -> list[str]:
    means = {n: fmean(share for share, _ in panels[n]) for n in LENGTHS}
    best = max(LENGTHS, key=means.get)
    as_good = [n for n in LENGTHS if share_difference(panels[best], panels[n])[1] <= 0]
    theirs = str(max(LENGTHS, key=lambda n: paper[n].value)) if paper else "-"
    shares = [f"{means[n]:.3f}" for n in LENGTHS]
    others = " ".join(str(n) for n in as_good if n != best)
    return [label, *shares, theirs, str(best), others or "-"]
