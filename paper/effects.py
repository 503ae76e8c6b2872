"""Whether an effect of the paper appears in our runs: a difference with its interval, and a word.

An effect says that one number is above another one, for example success after training above that
before. The numbers come from the runs' own files.
"""

from dataclasses import dataclass

from paper.intervals import difference, mean_error, share_difference, signed
from paper.quantities import error_before, initial_evaluation, numbers
from reports.evaluations import markdown_table
from reports.run_files import Run

SEEN, NOT_SEEN, UNDECIDED = "seen", "not seen", "not decided"
MARGIN = 0.05
OURS = """
"Ours" is the first number minus the second."""
RULE = f"""
A difference comes with its 95 % interval. **{SEEN.capitalize()}**: all of the interval lies above
0, however small the difference is. **{NOT_SEEN.capitalize()}**: it does not, and it ends below the
margin, which rules a larger effect out. **{UNDECIDED.capitalize()}**: everything else, and too few
runs."""
CLAIM_RULE = f"""
The comparisons of a claim are the rows below that begin with its number. A comparison has one row,
or two: success after training, and its mean in training. It is "{SEEN}" if one of its rows is and
none is "{NOT_SEEN}", and it is "{NOT_SEEN}" if all its rows are. A claim is **{SEEN}** if all its
comparisons are, and **{NOT_SEEN}** if one of them is. A claim that says "often" is either of them
if more than half of its comparisons are. Everything else is **{UNDECIDED}**."""
OVER_SEEDS = """
For trained models it is the bootstrap interval over seeds of a difference of interquartile means,
in which all rows of a side are together. Over so few seeds it is too narrow rather than too wide.
To the one evaluation before training belongs the normal doubt over its episodes. (Of the length of
episodes no such doubt is recorded.)"""
OVER_EPISODES = """
For initial models it is the normal interval over episodes, which are taken as independent. As all
rows play the same episodes, it is too wide rather than too narrow."""


@dataclass(frozen=True)
class Effect:
    """What the paper finds: `more` is above `less`.

    more, less: the names of rows, and a quantity as in `paper.quantities`
    paper: the paper's difference, if it prints one
    margin: an interval that does not lie above 0 and ends below this rules the effect out
    """

    label: str
    more: tuple[tuple[str, ...], str]
    less: tuple[tuple[str, ...], str]
    paper: str = ""
    margin: float = MARGIN

    @property
    def over_episodes(self) -> bool:
        """Whether it is about initial models, which have no seeds."""
        return self.more[1].startswith("before") and self.less[1].startswith("before")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper.

    tests: comparisons, each measured by one effect or more
    often: whether it is about most of its comparisons instead of all
    """

    text: str
    tests: list[list[Effect]]
    often: bool = False


def gain(label: str, name: str, quantity: str, paper: str = "", margin: float = MARGIN) -> Effect:
    """That training raises a quantity of eval.jsonl."""
    return Effect(
        label, ((name,), f"after {quantity}"), ((name,), f"before {quantity}"), paper, margin
    )


def verdict(low: float, high: float, margin: float) -> str:
    """A word about a difference whose interval is [low, high]."""
    if low > 0:
        return SEEN
    return NOT_SEEN if high < margin else UNDECIDED


def claims_part(claims: list[Claim], runs: dict[str, list[Run]]) -> str:
    """The part of a page about its claims, "" if there are none."""
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
    """The part of a page about its effects, "" if there are none. runs: of each row, by name"""
    if not effects:
        return ""
    rows = [effect_cells(effect, runs) for effect in effects]
    head = [name for name in rows[0] if any(cells[name] != "-" for cells in rows)]
    kinds = {effect.over_episodes for effect in effects}
    about = OURS + RULE + OVER_SEEDS * (False in kinds) + OVER_EPISODES * (True in kinds)
    table = markdown_table([head, *([cells[name] for name in head] for cells in rows)])
    return f"## Does the paper's effect appear?\n\n{table}\n{about}"


def effect_cells(effect: Effect, runs: dict[str, list[Run]]) -> dict[str, str]:
    """Column -> text."""
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
    """(mean, low, high), None while a row has too few finished runs."""
    more, less = sides_of(effect.more, runs), sides_of(effect.less, runs)
    if not (all(more) and all(less)):
        return None
    if effect.over_episodes:
        return share_difference(*(_panels(part[0], runs) for part in (effect.more, effect.less)))
    for side, (_, quantity) in ((more, effect.more), (less, effect.less)):
        if min(map(len, side)) < 2 and not quantity.startswith("before"):
            return None
    names, quantity = effect.less
    kind, metric = quantity.split()
    errors = [error_before(runs[name], metric) for name in names * (kind == "before")]
    return difference(more, less, mean_error(errors) if errors else 0.0)


def sides_of(part: tuple[tuple[str, ...], str], runs: dict[str, list[Run]]) -> list[list[float]]:
    """For each row its numbers."""
    names, quantity = part
    return [numbers(runs.get(name, []), quantity) for name in names]


def _panels(names: tuple[str, ...], runs: dict[str, list[Run]]) -> list[tuple[float, float]]:
    """Of each row's initial model: share of successes, and of how many episodes."""
    first = [initial_evaluation(runs[name]) for name in names]
    return [(e["eval/success"], e["eval/episodes"]) for e in first]
