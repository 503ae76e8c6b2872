"""What a table is made of: rows, the flags of their runs, and the scales of models.

Settings that are not given here keep main.py's defaults: the paper's, or the embedded model's
recipe.
"""

from dataclasses import dataclass, field

from paper.effects import Claim, Effect

EPISODES = 512  # per evaluation, where a row does not set them
ONLY_EPISODES = 128  # the same of runs that only evaluate; the paper's play 32
WARM_UP = 40  # batches of the critic's warm-up, where a row does not set them

# Where episodes are long, too few of them end within 256 turns.
LONGER = {"e_len": 16, "w_epoch": 20, "lr": 4e-4, "lr_schedule": "linear"}

# models are given per family, flags for every run, recipes for the trained runs of an environment
# or else of its family; tokens: what each further turn of memory adds to the prompt limit; seeds:
# at most
QWEN = "Qwen/Qwen2.5-{}B-Instruct"
SCALES = {
    "paper": {
        "models": {"babyai": QWEN.format(3), "baba": QWEN.format(3), "crafter": QWEN.format(7)},
        "flags": {},
        "recipes": {
            "babyai": {"num_updates": 300},
            "baba": {"num_updates": 300},
            "crafter": {"num_updates": 170},
        },
        "tokens": 768,
        "seeds": 3,
        "about": "the paper's models and settings",
    },
    "embedded": {
        "models": {
            "babyai": "models/tiny-memory",
            "baba": "models/tiny-babaisai-memory",
            "crafter": "models/tiny-crafter",
        },
        "flags": {"engine": "transformers"},  # runs on any CPU, with the same results
        "recipes": {
            "babyai": {"num_updates": 40},
            # with less KL, thoughts drift from what is seen
            "baba": LONGER | {"kl_coef": 0.01, "num_updates": 40},
            "crafter": {"num_updates": 120},
            "babyai-pick-up-seq-go-to": LONGER | {"memory_length": 4, "num_updates": 80},
            "babyai-putnext": LONGER | {"memory_length": 4, "num_updates": 80},
        },
        "tokens": 96,
        "seeds": 5,
        "about": "embedded models of fewer than 0.2 M parameters, so the paper's levels are no "
        "yardstick for ours: what compares is what training changes",
    },
}


def measure_of(env: str) -> str:
    """What of eval.jsonl tells how well an environment is played."""
    return "return" if env == "crafter" else "success"


@dataclass
class PaperRow:
    """A row of a table. Its runs differ in their seeds."""

    env: str
    label: str
    name: str  # of the runs
    memory: int = 1  # turns of history in the prompt
    paper: tuple = ("-", "-")  # numbers before and after training; "-": not printed
    paper_length: str = "-"  # turns of an episode
    flags: dict = field(default_factory=dict)  # of main.py, besides those of the scale
    seeds: int = 5  # 3 where a run takes more than a quarter of an hour, and beside Table 3

    @property
    def measure(self) -> str:
        """What of eval.jsonl the table shows."""
        return measure_of(self.env)


@dataclass
class PaperTable:
    title: str
    rows: list[PaperRow]
    about: str = ""
    trained: bool = True  # its runs train; otherwise they evaluate the initial model
    effects: list[Effect] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)  # made of its effects
    pictures: tuple[str, ...] = ()  # of reports.charts
    scenes: bool = False  # whether each row's curve is drawn beside a picture of its environment


def flags_of(scale: str, table: PaperTable, row: PaperRow, seed: int) -> dict:
    """Flag -> value for main.py. True stands for a flag without a value."""
    settings, family = SCALES[scale], row.env.split("-")[0]
    recipes = settings["recipes"]
    recipe = recipes.get(row.env, recipes[family]) if table.trained else {}
    flags = {"env_name": row.env, "model": settings["models"][family], "seed": seed}
    episodes = EPISODES if table.trained else ONLY_EPISODES
    flags |= settings["flags"] | {"eval_episodes": episodes} | recipe | row.flags
    if row.memory > 1:
        flags |= {"memory_length": row.memory}
    if "memory_length" in flags:
        flags |= {"prompt_limit": 1024 + settings["tokens"] * flags["memory_length"]}
    if table.trained:  # evaluated after the last update and, for all seeds together, once before
        updates = recipe["num_updates"]
        if row.flags.get("w_epoch") == 0:  # an equal number of turns
            updates += recipe.get("w_epoch", WARM_UP)
        flags |= {"num_updates": updates, "eval_interval": updates}
        flags |= {"skip_first_eval": True} if seed != 1 else {}
    else:
        flags |= {"eval_only": True}
    return flags
