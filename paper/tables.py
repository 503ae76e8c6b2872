"""The paper's tables and figures: their rows and what they show.

`printed` has the paper's numbers, `rows` defines rows, `reproduce` makes the runs, and `results`
writes the pages. Rows with equal names share their runs, also across tables.
"""

from math import hypot

from paper.effects import Effect, gain
from paper.printed import (
    CRAFTER,
    CRAFTER_LENGTH,
    LENGTHS,
    TRAINED_SUCCESS,
    ZERO_SHOT,
    ZERO_SHOT_MEAN,
    Printed,
    fifth_task,
)
from paper.rows import PaperRow, PaperTable

SHORT, LONG = (1, 2, 4), (8, 16, 32)  # memory lengths; short ones are better in the paper


def zero_shot_rows() -> list[PaperRow]:
    rows = []
    for env, numbers in [*ZERO_SHOT.items(), ("babyai-putnext", None)]:
        for n in LENGTHS:
            paper = numbers[n] if numbers else f"({fifth_task(n)} of 32)"
            label, name = f"{env}, memory length {n}", zero_shot(env, n)
            rows.append(PaperRow(env, label, name, n, (paper, "-")))
    return rows


def zero_shot(env: str, n: int) -> str:
    return f"{env}-zero-shot-n{n}"


def shorter_is_better(label: str, envs: list[str], numbers: dict[int, Printed]) -> Effect:
    short, long = ([numbers[n] for n in lengths] for lengths in (SHORT, LONG))
    short_rows = tuple(zero_shot(env, n) for env in envs for n in SHORT)
    long_rows = tuple(zero_shot(env, n) for env in envs for n in LONG)
    return Effect(
        label,
        more=(short_rows, "before eval/success"),
        less=(long_rows, "before eval/success"),
        paper=_mean_printed(short).above(_mean_printed(long)),
    )


def _mean_printed(numbers: list[Printed]) -> Printed:
    mean = sum(number.value for number in numbers) / len(numbers)
    return Printed(mean, hypot(*(number.error for number in numbers)) / len(numbers))


PICKUP = "babyai-pickup"
BABYAI = [*ZERO_SHOT, "babyai-putnext"]
BABA_TASKS = ["goto_win", "make_win", "two_room-goto_win", "two_room-break_stop-goto_win",
        "two_room-maybe_break_stop-goto_win", "two_room-make_win",
        "two_room-break_stop-make_win"]  # fmt: skip
DISTRACTORS = ["", "-distr_obj", "-distr_rule", "-distr_obj_rule", "-distr_obj-irrelevant_rule"]
BABA = [f"baba-{way}{distractor}" for way in BABA_TASKS for distractor in DISTRACTORS] + [
    f"baba-two_room-{way}"
    for way in ("goto_win-distr_win_rule", "make_win-distr_win_rule", "make_you",
                "make_you-make_win", "make_wall_win")
]  # fmt: skip
CRAFTER_ROW = PaperRow(
    "crafter", "crafter", "crafter", paper=CRAFTER, flags={"eval_episodes": 128},
    paper_length=f"{CRAFTER_LENGTH[0]} -> {CRAFTER_LENGTH[1]}",
)  # fmt: skip
TRAINED_ROWS = [PaperRow(env, env, env, paper=numbers) for env, numbers in TRAINED_SUCCESS.items()]
PICKUP_ROW = TRAINED_ROWS[list(TRAINED_SUCCESS).index(PICKUP)]
UNDISCOUNTED = f"{PICKUP}-undiscounted"
LENGTH_ROWS = [
    PaperRow(PICKUP, f"{PICKUP}, memory length {n}", PICKUP + f"-n{n}" * (n > 1), n,
             (ZERO_SHOT[PICKUP][n], PICKUP_ROW.paper[1] if n == 1 else "-"))
    for n in LENGTHS[:4]
]  # fmt: skip
LENGTH_NAMES = [row.name for row in LENGTH_ROWS]

TABLES = {
    "table1": PaperTable(
        "Table 1: memory length, zero-shot",
        zero_shot_rows(),
        "The paper's shares are over 32 episodes. It prints no row for putnext, but its means are "
        "over five tasks: the numbers in parentheses follow from the means and the four rows. The "
        f"printed means are {', '.join(map(str, ZERO_SHOT_MEAN.values()))}.",
        trained=False,
        effects=[
            *(shorter_is_better(f"{env}: lengths 1, 2, 4 above 8, 16, 32", [env], numbers)
              for env, numbers in ZERO_SHOT.items()),
            shorter_is_better("mean of the five tasks, the same", BABYAI, ZERO_SHOT_MEAN),
        ],
    ),
    "table2": PaperTable(
        "Table 2: Crafter, return before and after training",
        [CRAFTER_ROW],
        "There are 22 achievements. Score: exp(mean of ln(1 + s)) - 1 over them, with s the "
        "percentage of episodes. The paper prints no errors here.",
        effects=[
            gain("crafter: return, after above before", "crafter", "eval/return",
                 CRAFTER[1].above(CRAFTER[0]), margin=0.5),
            gain("crafter: turns of an episode, after above before", "crafter", "eval/episode_len",
                 CRAFTER_LENGTH[1].above(CRAFTER_LENGTH[0]), margin=5.0),
        ],
        pictures=("return", "achievements"),
    ),
    "table3": PaperTable(
        "Table 3: BabyAI and BabaIsAI, success before and after training",
        [*TRAINED_ROWS, PaperRow("babyai-putnext", "babyai-putnext", "babyai-putnext")],
        "The paper prints nothing about putnext. Numbers of its web page stand in parentheses "
        "where they differ.",
        effects=[
            gain(f"{env}: after above before", env, "eval/success", after.above(before))
            for env, (before, after) in TRAINED_SUCCESS.items()
        ] + [gain("babyai-putnext: the same", "babyai-putnext", "eval/success")],
    ),
    "babaisai": PaperTable(
        "BabaIsAI: all tasks before training",
        [PaperRow(env, env, zero_shot(env, 1), paper=(*TRAINED_SUCCESS.get(env, "-"), "-")[:2])
         for env in BABA],
        "The paper prints four of them.",
        trained=False,
    ),
    "figure3": PaperTable(
        "Figure 3: dual discounting against gamma = lambda = 1",
        [
            PaperRow(PICKUP, "gamma_step .99, lam_step .95", PICKUP, paper=PICKUP_ROW.paper),
            PaperRow(PICKUP, "gamma_step 1, lam_step 1", UNDISCOUNTED,
                     flags={"gamma_step": 1, "lam_step": 1}),
        ],
        "gamma_token = lam_token = 1 in both. The targets of the value losses differ in spread.",
        effects=[
            Effect("mean success in training: with discounts above without",
                   ((PICKUP,), "mean rollout/success"), ((UNDISCOUNTED,), "mean rollout/success")),
            Effect("value loss of the last ten updates: without discounts above with",
                   ((UNDISCOUNTED,), "last ppo/value_loss"), ((PICKUP,), "last ppo/value_loss"),
                   margin=0.0),
        ],
        pictures=("success", "value_loss"),
    ),
    "figure4": PaperTable(
        "Figure 4: memory length in training",
        LENGTH_ROWS,
        "We chose the task and the lengths. The paper's numbers come from its tables.",
        effects=[
            Effect("after training: lengths 1 and 2 above 4 and 8",
                   (tuple(LENGTH_NAMES[:2]), "after eval/success"),
                   (tuple(LENGTH_NAMES[2:]), "after eval/success")),
            Effect("before training: length 1 above 8", ((LENGTH_NAMES[0],), "before eval/success"),
                   ((LENGTH_NAMES[3],), "before eval/success"),
                   ZERO_SHOT[PICKUP][1].above(ZERO_SHOT[PICKUP][8])),
        ],
        pictures=("success", "response_tokens"),
    ),
    "figure5": PaperTable(
        "Figure 5: training curves of nine scenarios",
        [*TRAINED_ROWS, CRAFTER_ROW],
        "A line is the mean over seeds of success (Crafter: return) in the last 100 episodes of "
        "training, with a band of one standard error.",
        scenes=True,
    ),
}  # fmt: skip
