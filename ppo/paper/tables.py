"""The paper's tables and figures as data: which runs each of them takes, and the paper's numbers.

`reproduce` makes the runs and `results` writes the pages. Rows of equal name share their runs, in
the same table or in another. Settings that are not given here keep main.py's defaults: the paper's,
or the embedded model's recipe.
"""

from dataclasses import dataclass, field

NOT_AT_HAND = "not at hand"
UNKNOWN = (NOT_AT_HAND, NOT_AT_HAND)
EPISODES = 512  # per evaluation
LENGTHS = (1, 2, 4, 8, 16, 32)  # of the memory

# Success before and after training, as the paper prints it; +- is a standard error.
SUCCESS = {
    "babyai-goto": ("0.88 +- 0.06", "1.00"),
    "babyai-pickup": ("0.41 +- 0.09", "1.00"),
    "babyai-pick-up-seq-go-to": ("0.22", "0.65"),
    "babyai-open": ("0.09", "0.94"),
    "baba-goto_win-distr_obj": UNKNOWN,
    "baba-two_room-goto_win": (NOT_AT_HAND, "0.89 +- 0.17"),
    "baba-two_room-goto_win-distr_obj_rule": UNKNOWN,
    "baba-two_room-maybe_break_stop-goto_win": (NOT_AT_HAND, "0.36 +- 0.07"),
}

# models and updates are given per family, flags for every run;
# tokens: what each further turn of memory adds to the prompt limit
QWEN = "Qwen/Qwen2.5-{}B-Instruct"
SCALES = {
    "paper": {
        "models": {"babyai": QWEN.format(3), "baba": QWEN.format(3), "crafter": QWEN.format(7)},
        "updates": {"babyai": 300, "baba": 300, "crafter": 170},
        "flags": {},
        "tokens": 768,
        "about": "the paper's models and settings",
    },
    "embedded": {
        "models": {
            "babyai": "models/tiny",
            "baba": "models/tiny-babaisai",
            "crafter": "models/tiny-crafter",
        },
        "updates": {"babyai": 40, "baba": 20, "crafter": 30},
        "flags": {"engine": "transformers"},  # runs on any CPU, with the same results
        "tokens": 96,
        "about": "embedded models of 0.13 M parameters, so the paper's levels are no yardstick "
        "for ours: what compares is what training changes",
    },
}


@dataclass
class PaperRow:
    """A row of a table. Its runs differ in their seeds."""

    env: str
    label: str
    name: str  # of the runs
    memory: int = 1  # turns of history in the prompt
    paper: tuple[str, str] = UNKNOWN  # numbers before and after training
    flags: dict = field(default_factory=dict)  # of main.py, besides those of the scale


@dataclass
class PaperTable:
    title: str
    rows: list[PaperRow]
    about: str = ""
    trained: bool = True  # its runs train; otherwise they evaluate the initial model
    measure: str = "success"  # of eval.jsonl
    pictures: tuple[str, ...] = ()  # of ppo.reports.charts


PICKUP = "babyai-pickup"
TABLES = {
    "table1": PaperTable(
        "Table 1: memory length, zero-shot",
        [
            PaperRow(env, f"{env}, memory length {n}", f"{env}-zero-shot-n{n}", n,
                     numbers if n == 1 else UNKNOWN)
            for env, numbers in SUCCESS.items() if env.startswith("babyai") for n in LENGTHS
        ],
        "Numbers of the paper stand at memory length 1 only; they are its zero-shot rows.",
        trained=False,
    ),
    "table2": PaperTable(
        "Table 2: Crafter, return before and after training",
        [PaperRow("crafter", "crafter", "crafter")],
        "Achievements of 22; score: exp of the mean of ln(1 + s) over them, less 1, "
        "s being the percentage of episodes.",
        measure="return",
    ),
    "table3": PaperTable(
        "Table 3: BabyAI and BabaIsAI, success before and after training",
        [PaperRow(env, env, env, paper=numbers) for env, numbers in SUCCESS.items()],
    ),
    "figure3": PaperTable(
        "Figure 3: dual discounting against gamma = lambda = 1",
        [
            PaperRow(PICKUP, "gamma_step .99, lam_step .95", PICKUP),
            PaperRow(PICKUP, "gamma_step 1, lam_step 1", f"{PICKUP}-undiscounted",
                     flags={"gamma_step": 1, "lam_step": 1}),
        ],
        "gamma_token = lam_token = 1 in both. Value losses are of targets of different spread.",
        pictures=("success", "value_loss"),
    ),
    "figure4": PaperTable(
        "Figure 4: memory length in training",
        [
            PaperRow(PICKUP, f"{PICKUP}, memory length {n}", PICKUP + f"-n{n}" * (n > 1), n)
            for n in LENGTHS[:4]
        ],
        "The task and the lengths are our choice.",
        pictures=("success", "response_tokens"),
    ),
}  # fmt: skip


def flags_of(scale: str, table: PaperTable, row: PaperRow, seed: int) -> dict:
    """Flag -> value for main.py. True stands for a flag without a value."""
    settings, family = SCALES[scale], row.env.split("-")[0]
    updates = settings["updates"][family]
    flags = {"env_name": row.env, "model": settings["models"][family], "seed": seed}
    flags |= settings["flags"] | row.flags | {"eval_episodes": EPISODES}
    if table.trained:  # evaluated after the last update and, for all seeds together, once before
        flags |= {"num_updates": updates, "eval_interval": updates}
        flags |= {"skip_first_eval": True} if seed != 1 else {}
    else:
        flags |= {"eval_only": True}
    if row.memory > 1:
        limit = 1024 + settings["tokens"] * row.memory
        flags |= {"memory_length": row.memory, "prompt_limit": limit}
    return flags
