"""What environments, small models and estimators change in the paper's defaults.

This file is data. A run's settings are the paper's (the defaults in arguments.py), overridden by
the recipe of the environment's family, then, for a small model, by EMBEDDED and the recipe that the
family has for it, or by SMOLLM2, then by the estimator's, and last by the command line's flags.
`turnwise recipe ...`, or `python -m arguments ...`, prints the result.
"""

from pathlib import Path

from common.host_memory import free_bytes
from common.processors import processors_of_a_rank, ranks_here

MODELS = Path(__file__).resolve().parent / "models"  # the embedded models
TINY = MODELS / "tiny"
INF = float("inf")
# The trainer needs one of a rank's processors, and more than eight workers have little to do.
WORKERS = min(processors_of_a_rank() - 1, 8)
AGENT_BYTES = 10**8  # of an agent's process: 40 MB (docs/agents.md), and another in an evaluation


def agent_workers() -> int:
    """Return how many processes of agents may take a quarter of the memory that is free now.

    A run takes at most one for each agent. On macOS they would be too large: none.
    """
    return free_bytes() // 4 // ranks_here() // AGENT_BYTES


AGENT_WORKERS = agent_workers()

LIBRARY = {"prompt_limit": 4096}  # rules, boards, long questions
FAMILIES = {
    "agent": {"memory": "verbatim", "prompt_limit": 4096, "env_workers": AGENT_WORKERS},
    "babaisai": {"response_limit": 384, "w_iter": 10},
    "calculator": {"memory_length": 8},  # all turns of an episode
    "crafter": {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "n_env": 128,
        "e_len": 16,
        "num_updates": 170,
        "minibatch": 1024,
        "w_epoch": 20,
        "w_iter": 20,
        "value_clip": INF,  # returns are about 10
        "prompt_limit": 4096,
        "env_workers": WORKERS,  # idle ones make the next worlds
    },
    "errands": {"memory": "notes"},  # the list is told once
    "gem": LIBRARY,
    "gsm8k": {"prompt_limit": 3072, "memory_length": 8},  # a turn may need an earlier result
    "guess": {"memory_length": 8},  # the whole dialogue
    "openenv": LIBRARY,
    "pettingzoo": LIBRARY,
    "reasoning-gym": LIBRARY,
    "scienceworld": LIBRARY,
    "shop": {"memory_length": 8},  # the whole episode
    "textarena": LIBRARY,
    "textworld": LIBRARY,
    "told": {"memory": "notes"},
    "tools": {"memory_length": 8, "prompt_limit": 4096},  # a user's class
}

# A model below this hidden size takes the recipes of the embedded models. The size, unlike the
# name of a directory, is the same in the model that a run exports and in every copy of it.
NARROW = 512  # pretrained chat models are wider
EMBEDDED = {
    "model": str(TINY),
    "num_updates": 40,
    "ppo_epoch": 2,
    "lr": 2e-4,
    "critic_lr": 3e-4,
    "w_iter": 6,
    "w_lr": 5e-4,
    "w_fraction": 0.2,
    "critic_layers": 1,
    "response_limit": 32,
    "eval_interval": 20,
    "env_workers": 0,  # workers change the engine's batches, and with them a run's last bits
}
CALCULATOR = {
    "model": str(MODELS / "tiny-calculator"),
    "num_updates": 80,
    "lr": 4e-4,
    "critic_lr": 1e-3,
    "lr_schedule": "linear",
    "w_epoch": 20,
    "w_iter": 8,
    "w_lr": 2e-3,
    "critic_layers": 2,
    "eval_interval": 40,
}
# SmolLM2-135M (hidden size 576) learns on two processors: docs/results/smollm2.md. An update of
# a larger model takes too long there, and on a GPU it has the paper's settings.
SLIM = 640
SMOLLM2 = {
    "n_env": 32,
    "e_len": 8,
    "num_updates": 30,
    "minibatch": 64,
    "lr": 2e-5,
    "critic_lr": 1e-4,
    "critic_layers": 1,
    "w_epoch": 2,
    "w_iter": 4,
    "w_fraction": 0.5,
    "w_lr": 1e-4,
    "eval_episodes": 128,
}
EMBEDDED_FAMILIES = {
    "agent": CALCULATOR | {"env_workers": AGENT_WORKERS},  # the examples' agents ask its questions
    "babaisai": {"model": str(MODELS / "tiny-babaisai")},
    "calculator": CALCULATOR,
    "crafter": {
        "model": str(MODELS / "tiny-crafter"),
        "n_env": 32,
        "minibatch": 64,
        "w_epoch": 10,
        "num_updates": 120,
        "lr_schedule": "linear",
        "kl_coef": 0.01,
        "eval_interval": 60,
        "eval_episodes": 64,
    },
    "errands": {
        "model": str(MODELS / "tiny-errands"),
        "num_updates": 60,
        "lr": 3e-4,
        "critic_lr": 5e-4,
        "minibatch": 64,
        "w_epoch": 8,
        "eval_interval": 30,
    },
    "gsm8k": CALCULATOR,  # it calls tools, but it cannot solve word problems
    "guess": {
        "model": str(MODELS / "tiny-guess"),
        "num_updates": 60,
        "minibatch": 64,
        "lr": 1.5e-4,
        "critic_lr": 5e-4,
        "lr_schedule": "linear",
        "kl_coef": 0.01,
        "w_epoch": 8,
        "response_limit": 16,
        "eval_interval": 30,
    },
    "shop": {
        "model": str(MODELS / "tiny-shop"),
        "num_updates": 60,
        "lr": 3e-4,
        "critic_lr": 5e-4,
        "minibatch": 64,
        "w_epoch": 8,
    },
    "textarena": {  # made for FrozenLake: no other embedded model plays a game of this library
        "model": str(MODELS / "tiny-frozen-lake"),
        "num_updates": 60,
        "lr": 3e-4,
        "critic_lr": 5e-4,
        "minibatch": 64,
        "w_epoch": 8,
        "response_limit": 16,
    },
    "tools": CALCULATOR,
}

# Estimators other than the paper's have the settings that they were published with. The KL penalty
# of GRPO, GiGPO and VinePPO is part of the loss.
NO_CRITIC = {"critic_layers": 0, "w_epoch": 0}
ESTIMATORS = {
    "turn-gae": {"first_token_weight": INF},  # one value a turn
    "rloo": NO_CRITIC | {"kl_coef": 0.03},
    "grpo": NO_CRITIC | {"kl_in": "loss", "kl_coef": 0.04},
    "gigpo": NO_CRITIC | {"kl_in": "loss", "kl_coef": 0.01, "gamma_step": 0.95},
    "vine": NO_CRITIC | {"kl_in": "loss", "kl_coef": 1e-4, "gamma_step": 1.0},
}
LORA_LR = 1e-4  # at least: merged in bf16, smaller updates are lost (benchmarks.lora)


def recipe(family: str, width: float, estimator: str, critic: bool) -> dict:
    """Return name -> value of the settings that differ from the paper's.

    width: the model's hidden size; inf: it is not known
    """
    chosen = dict(FAMILIES.get(family, {}))
    if width < NARROW:
        chosen |= EMBEDDED | EMBEDDED_FAMILIES.get(family, {})
    elif width < SLIM:
        chosen |= SMOLLM2
    return chosen | ESTIMATORS.get(estimator, {} if critic else NO_CRITIC)


def made_for(width: float) -> str:
    """Return the models that a recipe is for. width: as that of `recipe`"""
    if width < NARROW:
        return "the embedded models"
    return "SmolLM2-135M" if width < SLIM else "the paper"
