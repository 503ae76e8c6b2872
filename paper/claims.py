"""The testable claims of the technical report, on one page.

All runs of a task play the same number of turns. The rows of the unchanged method share the runs of
Tables 2 and 3.
"""

from paper.effects import Claim, Effect
from paper.rows import WARM_UP, PaperRow, PaperTable
from paper.tables import CRAFTER_ROW

CLAIM_TASK = "babyai-pickup"  # its runs are short
AFTER_SUCCESS, TRAINING_SUCCESS = "after eval/success", "mean rollout/success"
MEMORY_TURNS = 5  # turns of memory: the paper clears its history every five steps


def changed(name: str, label: str, turns: int = 1, **flags) -> PaperRow:
    return PaperRow(CLAIM_TASK, label, f"{CLAIM_TASK}{name}", memory=turns, flags=flags)


WINDOW_ROW = changed(f"-n{MEMORY_TURNS}", "window of 5 turns", MEMORY_TURNS)
ACTIONS_ROW = changed(
    f"-action-n{MEMORY_TURNS}", "5 turns, actions only", MEMORY_TURNS, memory="action"
)
PERIODIC_ROW = changed(
    f"-periodic-n{MEMORY_TURNS}", "cleared every 5 turns", MEMORY_TURNS, memory="periodic"
)
UNCHANGED = changed("", "the unchanged method")
ENDS = changed("-end", "an invalid action ends the episode", on_invalid="end")
# The reference measures the KL; in fp32 the penalty rounds to 0.
NO_KL = changed("-no-kl", "no KL in the reward", kl_coef=1e-99)
E_LENS = {
    n: changed(f"-e{n}", f"e_len {n}, n_env {256 // n}", n_env=256 // n, e_len=n)
    for n in (4, 16, 32)
}
NO_WARM_UP = changed("-no-warm-up", f"no warm-up, {WARM_UP} more updates", w_epoch=0)
EVEN = changed("-first-token-1", "first token weighs 1", first_token_weight=1)


def success_above(claim: int, more: PaperRow, less: PaperRow) -> list[Effect]:
    """Compare success after training and its mean in training, which shows how fast it rises."""
    label, names = f"{claim}: {more.label} above {less.label}", ((more.name,), (less.name,))
    return [
        Effect(f"{label}, {when}", more=(names[0], quantity), less=(names[1], quantity))
        for when, quantity in (
            ("after training", AFTER_SUCCESS),
            ("mean in training", TRAINING_SUCCESS),
        )
    ]


def kl_above(label: str, more: tuple[PaperRow, str], less: tuple[PaperRow, str]) -> Effect:
    """Compare the KL of the last updates. more, less: a row and a metric"""
    more_row, more_metric = more
    less_row, less_metric = less
    return Effect(
        label,
        more=((more_row.name,), f"last {more_metric}"),
        less=((less_row.name,), f"last {less_metric}"),
        margin=0.0,
    )


TESTED_CLAIMS = [
    Claim(
        "A history with actions only, and a history cleared every 5 steps, do worse than a window.",
        [success_above(1, WINDOW_ROW, ACTIONS_ROW), success_above(1, WINDOW_ROW, PERIODIC_ROW)],
    ),
    Claim(
        "Replacing an invalid action by the default action is better than ending the episode.",
        [success_above(2, UNCHANGED, ENDS)],
    ),
    Claim(
        "Without KL in the reward the policy drifts and converges to poor solutions.",
        [
            [kl_above("3: KL without the penalty above KL with it", (NO_KL, "kl/ref"),
                      (UNCHANGED, "kl/ref"))],
            success_above(3, UNCHANGED, NO_KL),
        ],
    ),
    Claim(
        "A longer e_len, with a smaller n_env and the same number of turns, often does better, at "
        "a lower throughput (see the minutes).",
        [success_above(4, longer, E_LENS[4]) for longer in (UNCHANGED, E_LENS[16], E_LENS[32])],
        often=True,
    ),
    Claim(
        "The critic needs its warm-up, and the first token of a turn needs a higher weight.",
        # without a warm-up, updates are at other turns, so means in training are not comparable
        [success_above(5, UNCHANGED, NO_WARM_UP)[:1], success_above(5, UNCHANGED, EVEN)],
    ),
    Claim(
        "In Crafter the KL of action tokens grows faster than the KL of reasoning tokens.",
        [[kl_above("6: KL in Crafter, action tokens above reasoning tokens",
                   (CRAFTER_ROW, "kl/ref_action"), (CRAFTER_ROW, "kl/ref_think"))]],
    ),
]  # fmt: skip
CLAIMS = PaperTable(
    "Claims of the technical report",
    [WINDOW_ROW, ACTIONS_ROW, PERIODIC_ROW, UNCHANGED, ENDS, NO_KL, *E_LENS.values(), NO_WARM_UP,
     EVEN, CRAFTER_ROW],
    f"All rows but the last are {CLAIM_TASK}. KL is `kl/ref`, `kl/ref_action` and `kl/ref_think` "
    "of [metrics](../metrics.md), in the last ten updates.",
    effects=[effect for claim in TESTED_CLAIMS for test in claim.tests for effect in test],
    claims=TESTED_CLAIMS,
)  # fmt: skip
