"""The paper's tables and figures as data: which runs each takes, and the paper's numbers.

`reproduce` runs them, `results` writes them down. A row of a table is a dict: its label,
the name of its runs, their environment and the flags besides those of SCALES, the paper's numbers
before and after training. Tables share runs: rows of equal name are the same runs. Settings that
are not here are main.py's defaults: the paper's, or the embedded model's recipe.
"""

NOT_AT_HAND = "not at hand"
EPISODES = 512  # of an evaluation
LENGTHS = (1, 2, 4, 8, 16, 32)  # of the memory

# Success before and after training, as the paper prints it; +- is a standard error.
SUCCESS = {
    "babyai-goto": ("0.88 +- 0.06", "1.00"),
    "babyai-pickup": ("0.41 +- 0.09", "1.00"),
    "babyai-pick-up-seq-go-to": ("0.22", "0.65"),
    "babyai-open": ("0.09", "0.94"),
    "baba-goto_win-distr_obj": (NOT_AT_HAND, NOT_AT_HAND),
    "baba-two_room-goto_win": (NOT_AT_HAND, "0.89 +- 0.17"),
    "baba-two_room-goto_win-distr_obj_rule": (NOT_AT_HAND, NOT_AT_HAND),
    "baba-two_room-maybe_break_stop-goto_win": (NOT_AT_HAND, "0.36 +- 0.07"),
}
BABYAI = [env for env in SUCCESS if env.startswith("babyai")]

# flags: of every run; models, updates: by family
# tokens: what the prompt limit gives to every turn of a longer memory
SCALES = {
    "paper": {
        "models": {
            "babyai": "Qwen/Qwen2.5-3B-Instruct",
            "baba": "Qwen/Qwen2.5-3B-Instruct",
            "crafter": "Qwen/Qwen2.5-7B-Instruct",
        },
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
        "flags": {"engine": "transformers"},  # the same on any CPU
        "tokens": 96,
        "about": "embedded models of 0.13 M parameters, so the paper's levels are no yardstick "
        "for ours: what compares is what training changes",
    },
}


def row(env: str, label: str = "", name: str = "", memory: int = 1, paper=None, **flags) -> dict:
    """memory: turns of history in the prompt. Defaults: label and name are the environment's,
    paper: there are no numbers."""
    return {
        "label": label or env,
        "name": name or env,
        "env": env,
        "memory": memory,
        "paper": paper or (NOT_AT_HAND, NOT_AT_HAND),
        "flags": flags,
    }


# trained: its rows are training runs, else evaluations of the initial model
# measure: of eval.jsonl; pictures: of ppo.reports.charts
TABLES = {
    "table1": {
        "title": "Table 1: memory length, zero-shot",
        "trained": False,
        "measure": "success",
        "pictures": (),
        "about": "Numbers of the paper stand at memory length 1 only; they are its zero-shot rows.",
        "rows": [
            row(
                env,
                label=f"{env}, memory length {n}",
                name=f"{env}-zero-shot-n{n}",
                memory=n,
                paper=SUCCESS[env] if n == 1 else None,
            )
            for env in BABYAI
            for n in LENGTHS
        ],
    },
    "table2": {
        "title": "Table 2: Crafter, return before and after training",
        "trained": True,
        "measure": "return",
        "pictures": (),
        "about": "Achievements of 22; score: exp of the mean of ln(1 + s) over them, less 1, "
        "s being the percentage of episodes.",
        "rows": [row("crafter")],
    },
    "table3": {
        "title": "Table 3: BabyAI and BabaIsAI, success before and after training",
        "trained": True,
        "measure": "success",
        "pictures": (),
        "about": "",
        "rows": [row(env, paper=numbers) for env, numbers in SUCCESS.items()],
    },
    "figure3": {
        "title": "Figure 3: dual discounting against gamma = lambda = 1",
        "trained": True,
        "measure": "success",
        "pictures": ("success", "value_loss"),
        "about": "gamma_token = lam_token = 1 in both. Value losses are of targets of different "
        "spread.",
        "rows": [
            row("babyai-pickup", label="gamma_step .99, lam_step .95"),
            row(
                "babyai-pickup",
                label="gamma_step 1, lam_step 1",
                name="babyai-pickup-undiscounted",
                gamma_step=1,
                lam_step=1,
            ),
        ],
    },
    "figure4": {
        "title": "Figure 4: memory length in training",
        "trained": True,
        "measure": "success",
        "pictures": ("success", "response_tokens"),
        "about": "The task and the lengths are our choice.",
        "rows": [
            row(
                "babyai-pickup",
                label=f"babyai-pickup, memory length {n}",
                name="babyai-pickup" + f"-n{n}" * (n > 1),
                memory=n,
            )
            for n in LENGTHS[:4]
        ],
    },
}


def flags_of(scale: str, table: dict, row: dict, seed: int) -> dict:
    """Flag -> value of the main.py command of a row; True: the flag takes none."""
    settings, family = SCALES[scale], row["env"].split("-")[0]
    updates = settings["updates"][family]
    flags = {"env_name": row["env"], "model": settings["models"][family], "seed": seed}
    flags |= settings["flags"] | row["flags"] | {"eval_episodes": EPISODES}
    if table["trained"]:  # evaluated after the last update and, for all seeds, once before
        flags |= {"num_updates": updates, "eval_interval": updates}
        flags |= {"skip_first_eval": True} if seed != 1 else {}
    else:
        flags |= {"eval_only": True, "report": True}
    if row["memory"] > 1:
        limit = 1024 + settings["tokens"] * row["memory"]
        flags |= {"memory_length": row["memory"], "prompt_limit": limit}
    return flags
