"""Decides whether an effect of the paper appears in our runs, from a difference and its interval.

An effect says that one quantity exceeds another, for example success after training that before
training. The numbers come from the runs' own files.
"""

from dataclasses import dataclass

from paper.intervals import difference, mean_error, paired, share_difference, signed
from paper.quantities import error_before, initial_evaluation, numbers
from reports.evaluations import markdown_table
from reports.run_files import Run

SEEN, NOT_SEEN, UNDECIDED = "seen", "not seen", "not decided"
MARGIN = 0.05
DIFFERENCE = """
"Ours" is the first number minus the second."""
RULE = f"""
Each difference has its 95 % interval. **{SEEN.capitalize()}**: the whole interval lies above 0,
however small the difference. **{NOT_SEEN.capitalize()}**: it does not, and it ends below the
margin, which rules out a larger effect. **{UNDECIDED.capitalize()}**: everything else, including
too few runs."""
CLAIM_RULE = f"""
The rows below that begin with a claim's number are its comparisons. A comparison has one row or
two: success after training, and its mean during training. It is "{SEEN}" if at least one of its
rows is "{SEEN}" and none is "{NOT_SEEN}". It is "{NOT_SEEN}" if all its rows are. A claim is
**{SEEN}** if all its comparisons are, and **{NOT_SEEN}** if one of them is. For a claim that says
"often", more than half of its comparisons decide. Everything else is **{UNDECIDED}**."""
OVER_SEEDS = """
For trained models it is Welch's t interval over seeds. A side of several rows is the mean of their
means. Where both numbers come from the same runs, it is the paired t interval. The single
evaluation before training adds its normal error over episodes. (No error is recorded for episode
lengths.)"""
OVER_EPISODES = """
For initial models it is the normal interval over episodes, treated as independent. All rows play
the same episodes, so it is more likely too wide than too narrow."""


@dataclass(frozen=True)
class Effect:
    """A finding of the paper: `more` exceeds `less`.

    more, less: names of rows, and a quantity as in `paper.quantities`
    paper: the paper's difference, if it prints one
    margin: an interval that includes 0 but ends below the margin rules the effect out
    """

    label: str
    more: tuple[tuple[str, ...], str]
    less: tuple[tuple[str, ...], str]
    paper: str = ""
    margin: float = MARGIN

    @property
    def over_episodes(self) -> bool:
        """Whether it compares initial models, which have no seeds."""
        return self.more[1].startswith("before") and self.less[1].startswith("before")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper.

    tests: comparisons, each measured by one or more effects
    often: whether most of its comparisons decide instead of all
    """

    text: str
    tests: list[list[Effect]]
    often: bool = False


def gain(label: str, name: str, quantity: str, paper: str = "", margin: float = MARGIN) -> Effect:
    """Return the effect that training raises a quantity of eval.jsonl."""
    return Effect(
        label, ((name,), f"after {quantity}"), ((name,), f"before {quantity}"), paper, margin
    )


def verdict(low: float, high: float, margin: float) -> str:
    """Return the verdict on a difference whose interval is [low, high]."""
    if low > 0:
        return SEEN
    return NOT_SEEN if high < margin else UNDECIDED


def claims_part(claims: list[Claim], runs: dict[str, list[Run]]) -> str:
    """Return the section about the claims, "" if there are none."""
    if not claims:
        return ""
    rows = [[str(k), c.text, _claim_word(c, runs)] for k, c in enumerate(claims, 1)]
    return f"{markdown_table([['', 'what the report says', 'here'], *rows])}\n{CLAIM_RULE}"


def _claim_word(claim: Claim, runs: dict[str, list[Run]]) -> str:
    words = [_test_word({word_of(effect, runs) for effect in test}) for test in claim.tests]
    if claim.often:
        most = [word for word in (SEEN, NOT_SEEN) if words.count(word) > len(words) / 2]
        return most[0] if most else UNDECIDED
    if NOT_SEEN in words:
        return NOT_SEEN
    return UNDECIDED if UNDECIDED in words else SEEN


def _test_word(words: set[str]) -> str:
    if words == {NOT_SEEN}:
        return NOT_SEEN
    return SEEN if SEEN in words and NOT_SEEN not in words else UNDECIDED


def effects_part(effects: list[Effect], runs: dict[str, list[Run]]) -> str:
    """Return the section about the effects, "" if there are none. runs: row name -> runs"""
    if not effects:
        return ""
    rows = [effect_cells(effect, runs) for effect in effects]
    head = [name for name in rows[0] if any(cells[name] != "-" for cells in rows)]
    kinds = {effect.over_episodes for effect in effects}
    about = DIFFERENCE + RULE + OVER_SEEDS * (False in kinds) + OVER_EPISODES * (True in kinds)
    table = markdown_table([head, *([cells[name] for name in head] for cells in rows)])
    return f"## Does the paper's effect appear?\n\n{table}\n{about}"


def effect_cells(effect: Effect, runs: dict[str, list[Run]]) -> dict[str, str]:
    """Return column -> text."""
    found = difference_of(effect, runs)
    counts = [
        sum(len(side) for side in sides_of(part, runs)) for part in (effect.more, effect.less)
    ]
    return {
        "": effect.label,
        "paper": effect.paper or "-",
        "ours": signed(*found) if found else "-",
        "runs": "{} and {}".format(*counts),
        "margin": f"{effect.margin:g}",
        "the paper's effect": word_of(effect, runs),
    }


def word_of(effect: Effect, runs: dict[str, list[Run]]) -> str:
    found = difference_of(effect, runs)
    return verdict(*found[1:], effect.margin) if found else UNDECIDED


def difference_of(effect: Effect, runs: dict[str, list[Run]]) -> tuple[float, float, float] | None:
    """Return (mean, low, high), or None while a row has too few finished runs."""
    more, less = sides_of(effect.more, runs), sides_of(effect.less, runs)
    if not (all(more) and all(less)):
        return None
    if effect.over_episodes:
        return share_difference(_panels(effect.more[0], runs), _panels(effect.less[0], runs))
    for side, (_, quantity) in ((more, effect.more), (less, effect.less)):
        if min(map(len, side)) < 2 and not quantity.startswith("before"):
            return None
    names, quantity = effect.less
    kind, metric = quantity.split()
    if names == effect.more[0] and "before" not in f"{quantity} {effect.more[1]}":
        return paired(more, less)
    errors = [error_before(runs[name], metric) for name in names * (kind == "before")]
    return difference(more, less, mean_error(errors) if errors else 0.0)


def sides_of(part: tuple[tuple[str, ...], str], runs: dict[str, list[Run]]) -> list[list[float]]:
    """Return the numbers of each row."""
    names, quantity = part
    return [numbers(runs.get(name, []), quantity) for name in names]


def _panels(names: tuple[str, ...], runs: dict[str, list[Run]]) -> list[tuple[float, float]]:
    """Return (share of successes, number of episodes) of each row's initial model."""
    first = [initial_evaluation(runs[name]) for name in names]
    return [(e["eval/success"], e["eval/episodes"]) for e in first]
