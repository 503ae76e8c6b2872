"""The claims of the technical report that a comparison can test, as one page.

All runs of a task play the same number of turns. The rows of the unchanged method are those of
Tables 2 and 3 and share their runs.
"""

from paper.effects import Claim, Effect
from paper.rows import WARM_UP, PaperRow, PaperTable
from paper.tables import CRAFTER_ROW

TASK = "babyai-pickup"  # its runs are short
AFTER, TRAINING = "after eval/success", "mean rollout/success"
LENGTH = 5  # turns of memory: the paper clears its history every five steps


def changed(name: str, label: str, turns: int = 1, **flags) -> PaperRow:
    return PaperRow(TASK, label, f"{TASK}{name}", memory=turns, flags=flags, seeds=3)


WINDOW = changed(f"-n{LENGTH}", "window of 5 turns", LENGTH)
ACTIONS = changed(f"-action-n{LENGTH}", "5 turns, actions only", LENGTH, memory="action")
PERIODIC = changed(f"-periodic-n{LENGTH}", "cleared every 5 turns", LENGTH, memory="periodic")
PLAIN = changed("", "the method as it is")
ENDS = changed("-end", "an invalid action ends the episode", on_invalid="end")
NO_KL = changed("-no-kl", "no KL in the reward", kl_coef=0, reference="device")
E_LENS = {
    n: changed(f"-e{n}", f"e_len {n}, n_env {256 // n}", n_env=256 // n, e_len=n)
    for n in (4, 16, 32)
}
NO_WARM_UP = changed("-no-warm-up", f"no warm-up, {WARM_UP} more updates", w_epoch=0)
EVEN = changed("-first-token-1", "first token weighs 1", first_token_weight=1)


def success_above(claim: int, more: PaperRow, less: PaperRow) -> list[Effect]:
    """Success after training and, which is higher the faster it rises, its mean in training."""
    label = f"{claim}: {more.label} above {less.label}"
    sides = lambda quantity: (((more.name,), quantity), ((less.name,), quantity))
    return [
        Effect(f"{label}, after training", *sides(AFTER)),
        Effect(f"{label}, mean in training", *sides(TRAINING)),
    ]


def kl_above(label: str, more: tuple[PaperRow, str], less: tuple[PaperRow, str]) -> Effect:
    side = lambda row, figure: ((row.name,), f"last {figure}")
    return Effect(label, side(*more), side(*less), margin=0.0)


MADE = [
    Claim(
        "A history with actions only, and a history cleared every 5 steps, do worse than a window.",
        [success_above(1, WINDOW, ACTIONS), success_above(1, WINDOW, PERIODIC)],
    ),
    Claim(
        "To replace an invalid action by the default action is better than to end the episode.",
        [success_above(2, PLAIN, ENDS)],
    ),
    Claim(
        "Without KL in the reward the policy drifts and converges to poor solutions.",
        [
            [kl_above("3: KL, without its penalty above with it", (NO_KL, "kl/ref"),
                      (PLAIN, "kl/ref"))],
            success_above(3, PLAIN, NO_KL),
        ],
    ),
    Claim(
        "A longer e_len, with a smaller n_env and the same number of turns, often does better, at "
        "a lower throughput (see the minutes).",
        [success_above(4, longer, E_LENS[4]) for longer in (PLAIN, E_LENS[16], E_LENS[32])],
        often=True,
    ),
    Claim(
        "The critic needs its warm-up, and the first token of a turn needs a higher weight.",
        # without a warm-up, the updates are at other turns: their means say nothing
        [success_above(5, PLAIN, NO_WARM_UP)[:1], success_above(5, PLAIN, EVEN)],
    ),
    Claim(
        "In Crafter the KL of the action's tokens grows faster than that of the reasoning's.",
        [[kl_above("6: KL in Crafter, of the action above that of the reasoning",
                   (CRAFTER_ROW, "kl/ref_action"), (CRAFTER_ROW, "kl/ref_think"))]],
    ),
]  # fmt: skip
CLAIMS = PaperTable(
    "Claims of the technical report",
    [WINDOW, ACTIONS, PERIODIC, PLAIN, ENDS, NO_KL, *E_LENS.values(), NO_WARM_UP, EVEN,
     CRAFTER_ROW],
    f"All rows but the last are {TASK}. KL is `kl/ref`, `kl/ref_action` and `kl/ref_think` of "
    "[metrics](../metrics.md), in the last ten updates.",
    effects=[effect for claim in MADE for test in claim.tests for effect in test],
    claims=MADE,
)  # fmt: skip
