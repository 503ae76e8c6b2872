"""Rows of the tables, the flags of their runs, and the scales of models.

Settings that are not given here keep main.py's defaults: those of the paper, or of the embedded
model's recipe.
"""

from dataclasses import dataclass, field

from paper.effects import Claim, Effect

TRAINED_EPISODES = 512  # default per evaluation of a training run
UNTRAINED_EPISODES = 128  # default per evaluation without training; the paper plays 32
WARM_UP = 40  # default batches of the critic's warm-up

# Where episodes are long, too few of them end within 256 turns.
LONGER = {"e_len": 16, "w_epoch": 20, "lr": 4e-4, "lr_schedule": "linear"}

# models: per family; flags: for every run; recipes: for training runs, per environment or family
# mixtures: flags of a policy for several tasks of a family, besides its recipe
# tokens: added to the prompt limit per turn of memory; seeds: 1 to this
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
        "mixtures": {"babyai": {}, "baba": {}},
        "tokens": 768,
        "seeds": 3,
        "about": "the paper's models and settings",
    },
    "embedded": {
        "models": {
            "babyai": "models/tiny",
            "baba": "models/tiny-babaisai",
            "crafter": "models/tiny-crafter",
        },
        "flags": {"engine": "transformers"},  # runs on any CPU with the same results
        "recipes": {
            "babyai": {"num_updates": 40},
            # with less KL, thoughts drift from the observation
            "baba": LONGER | {"kl_coef": 0.01, "num_updates": 40},
            "crafter": {"num_updates": 120},
            "babyai-pick-up-seq-go-to": LONGER | {"memory_length": 4, "num_updates": 80},
            "babyai-putnext": LONGER | {"memory_length": 4, "num_updates": 80},
        },
        "mixtures": {
            "babyai": LONGER | {"memory_length": 4, "num_updates": 180},
            "baba": {"num_updates": 100},
        },
        "tokens": 96,
        "seeds": 5,
        "about": "embedded models of fewer than 0.2 M parameters, so compare the effects of "
        "training with the paper, not the levels",
    },
}


def measure_of(env: str) -> str:
    """Return the metric of eval.jsonl that measures performance in an environment."""
    return "return" if env == "crafter" else "success"


@dataclass
class PaperRow:
    """A row of a table. Its runs differ only in their seeds."""

    env: str
    label: str
    name: str  # name of the runs
    memory: int = 1  # turns of history in the prompt
    paper: tuple = ("-", "-")  # numbers before and after training; "-": not printed
    paper_length: str = "-"  # printed episode lengths, in turns
    flags: dict = field(default_factory=dict)  # flags of main.py, besides those of the scale

    @property
    def measure(self) -> str:
        """The metric of eval.jsonl that the table shows."""
        return measure_of(self.env)


@dataclass
class PaperTable:
    title: str
    rows: list[PaperRow]
    about: str = ""
    trained: bool = True  # whether its runs train; otherwise they evaluate the initial model
    effects: list[Effect] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)  # claims, tested by its effects
    pictures: tuple[str, ...] = ()  # charts of reports.charts
    scenes: bool = False  # draw each row's curve beside an image of its environment


def seeds_of(scale: str, chosen: list[int] | None) -> list[int]:
    """Return the chosen training seeds, each once, or all seeds of the scale."""
    return list(dict.fromkeys(chosen or range(1, SCALES[scale]["seeds"] + 1)))


def flags_of(scale: str, table: PaperTable, row: PaperRow, seed: int) -> dict:
    """Return flag -> value for main.py. True stands for a flag without a value."""
    settings, family = SCALES[scale], row.env.split("-")[0]
    recipes = settings["recipes"]
    recipe = recipes.get(row.env, recipes[family]) if table.trained else {}
    flags = {"env_name": row.env, "model": settings["models"][family], "seed": seed}
    flags.update(settings["flags"])
    flags["eval_episodes"] = TRAINED_EPISODES if table.trained else UNTRAINED_EPISODES
    flags.update(recipe | row.flags)
    if row.memory > 1:
        flags["memory_length"] = row.memory
    if "memory_length" in flags:
        flags["prompt_limit"] = 1024 + settings["tokens"] * flags["memory_length"]
    if not table.trained:
        flags["eval_only"] = True
        return flags
    updates = flags["num_updates"]
    if row.flags.get("w_epoch") == 0:  # more updates, for the same number of turns
        updates += recipe.get("w_epoch", WARM_UP)
    flags["num_updates"] = updates
    # The trained model is evaluated, and with one seed the initial one, which all seeds share.
    flags["eval_interval"] = updates if seed == 1 else updates + 1
    return flags
