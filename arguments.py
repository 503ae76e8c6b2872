"""Every flag of main.py on one line: name, type and range, the paper's default, and what it does.

A class holds the flags of one part of the program, in the order of the loop. Defaults are the
paper's BabyAI run; `recipes` changes some of them, and flags on the command line override both.
Importing this file has no effects, and it imports nothing slow: `--help` answers at once.
"""

import json
import os
import sys
from argparse import Namespace
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from shutil import which
from typing import Literal

from common.cli import LOADING, Parser, print_status, run_printing
from common.clip import clip_range
from common.estimator import continuations, estimator, has_critic, is_whitened, key_of
from common.execution import FORMS, TIMEOUT, env_workers
from common.flags import (
    Bound,
    Coefficient,
    Count,
    CountOrNone,
    FirstWeight,
    RatioOrNone,
    Seed,
    Share,
    TargetOrNone,
    Temperature,
    Unit,
    Whole,
    add_flags,
    check_kinds,
    check_ranges,
    defaults_of,
    flag,
    spelled,
)
from common.masked import masked
from common.plugins import UserError
from common.template_flag import template_kwargs
from common.trained import FORMS as FORMS_OF_TRAIN
from common.trained import Trained, lora_rank, trained
from envs import family
from envs.checks import check_data, check_prompts, check_weak
from envs.mixture import one_of
from envs.prompts import prompts_of
from envs.trust import refuse_foreign
from recipes import INF, LORA_LR, made_for, recipe
from run.checks import check, check_method
from run.earlier import folder, hidden_size, model_path, refuse_changes, resumed_run, saved_args
from run.unused import listed, refuse_unused, unused

ABOUT = """Train a language model as an agent with PPO, or evaluate one. The defaults shown are
those of the environment and the model on this command line. They are the paper's; some environments
and the small embedded models, which play where there is no GPU, have others."""
HELP = {"-h", "--help"}


# fmt: off
@dataclass
class Environment:
    """environment and memory"""

    env_name: str = flag("babyai-goto", "a name that `python -m envs` prints, several with commas, a pattern such as babyai-*, or your own: module:EnvId of gymnasium, tools:module:Class, agent:module:function")
    max_episode_steps: CountOrNone = flag(None, "turns after which an episode is truncated (default: the task's limit)")
    format_penalty: Coefficient = flag(0.1, "cost of a turn whose response names no valid action")
    on_invalid: Literal["default", "end"] = flag("default", "such a turn executes the default action, or ends the episode")
    env_workers: int | str = flag(0, f"{FORMS}: what runs the environments, and how long a turn may take there and with agents, {TIMEOUT:.0f} s unless named; 0: the trainer itself; threads, for environments that wait, cannot be stopped", type=env_workers, metavar="K")
    data: str | None = flag(None, "rows of gsm8k, JSONL or parquet (default: generated ones)", type=os.path.abspath, metavar="PATH")
    prompts: dict | None = flag(None, "your own prompts instead of ours, TOML: docs/environments.md", type=prompts_of, metavar="FILE")
    upstream: str | None = flag(None, "base URL that answers agents' requests for other models", metavar="URL")
    memory: str = flag("window", "window, action, periodic, full, notes, summary, verbatim or module:Class")
    memory_length: Whole = flag(1, "past turns in a prompt")
    history_thinking: Literal["keep", "strip"] = flag("keep", "whether later prompts keep the text between <think> and </think>")


@dataclass
class Generation:
    """generation"""

    model: str = flag("Qwen/Qwen2.5-3B-Instruct", "directory, run or hub name of a Hugging Face model, or smollm2: docs/real-model.md", type=model_path)
    engine: str = flag("auto", "vllm, vllm:N for N ranks that share one, vllm-lora, transformers or module:Class; auto: the faster one")
    gpu_memory_utilization: Share = flag(0.3, "vLLM's share of the GPU's memory")
    endpoint_sampling: Literal["refuse", "run", "untrained"] = flag("refuse", "agents' requests with top_p and the like: refuse them, ignore their options, or answer as asked without training on it")
    template_kwargs: dict = flag({}, "arguments of the chat template, as in '{\"enable_thinking\": false}'; chat_template: a file that replaces it", type=template_kwargs, metavar="JSON")
    temperature: Temperature = flag(1.0, "sampling temperature; 0: greedy")
    prompt_limit: Count = flag(1024, "tokens of a prompt; the oldest turns are dropped")
    response_limit: Count = flag(512, "tokens of a response; a longer one is cut off")


@dataclass
class WarmUp:
    """critic warm-up"""

    w_epoch: Whole = flag(40, "batches that the warm-up collects; 0: no warm-up")
    w_iter: Count = flag(5, "rounds of critic training on these batches")
    w_fraction: Share = flag(0.1, "share of the turns that a round trains on")
    w_lr: Unit = flag(1e-5, "learning rate of the critic during the warm-up")


@dataclass
class Batch:
    """batches"""

    n_env: Count = flag(32, "number of environments that run in parallel")
    e_len: Count = flag(8, "turns of each environment per update")
    group_size: Whole = flag(0, "collect whole episodes, this many from one seed, n_env x e_len turns or more; 0: exactly e_len turns of each environment")
    use_proper_time_limits: bool = flag(False, "bootstrap with V at a time limit, which otherwise counts as a failure")


@dataclass
class Update(Trained):
    """advantages and update"""

    advantages: str = flag("dual-gae", "dual-gae, token-gae, turn-gae, rloo, grpo, gigpo, vine:K, which plays K continuations of each state (vine: 9), or module:function", type=estimator, metavar="NAME")
    gamma_step: Unit = flag(0.99, "discount from turn to turn")
    lam_step: Unit = flag(0.95, "GAE lambda from turn to turn")
    gamma_token: Unit = flag(1.0, "discount from token to token")
    lam_token: Unit = flag(1.0, "GAE lambda from token to token")
    kl_in: Literal["reward", "loss"] = flag("reward", "put the KL penalty into the reward or the loss")
    kl_coef: Coefficient = flag(0.001, "coefficient beta of the KL penalty; 0: there is no reference model")
    kl_target: TargetOrNone = flag(None, "KL per token that beta adapts to (default: beta is constant)")
    critic_layers: Whole = flag(2, "layers of the critic, copied from the actor's top; 0: a linear head alone")
    lr: Unit = flag(1e-6, "learning rate of the actor, or of its adapters")
    critic_lr: Unit = flag(1e-5, "learning rate of the critic")
    lr_schedule: Literal["constant", "linear"] = flag("constant", "linear: both learning rates fall to 0")
    ppo_epoch: Count = flag(1, "passes over a batch")
    minibatch: Count = flag(128, "turns per optimizer step")
    token_budget: Count = flag(4096, "padded tokens per forward pass")
    rows: Literal["auto", "padded", "packed", "merged", "packed+merged"] = flag("auto", "padded: a row per turn; packed: no padding; merged: turns that extend one another share a row; auto: packed on a GPU in bfloat16, merged if it saves a tenth")
    clip: float | str = flag(0.2, "clip range of the probability ratio: X or LOW:HIGH; turn: or episode: before it: one ratio for the tokens of a turn or of an episode", type=clip_range, metavar="X")
    value_clip: Bound = flag(0.5, "clip range of value changes; inf: off")
    first_token_weight: FirstWeight = flag(3.0, "weight of a turn's first token in the value loss; inf: it alone counts")
    entropy_coef: Coefficient = flag(0.0, "coefficient of the entropy bonus")
    max_grad_norm: Bound = flag(1.0, "largest norm of a gradient; inf: off")
    dtype: Literal["auto", "float32", "bfloat16"] = flag("auto", "dtype of activations; auto: bfloat16 on a GPU")
    gradient_checkpointing: bool = flag(False, "recompute activations in the backward pass")
    train: str = flag("all", f"{FORMS_OF_TRAIN}: all weights, LoRA adapters of this rank, or the top layers, which is faster, because what lies below is computed once an update", type=trained, metavar="WHAT")
    zero_stage: Literal[0, 1, 2, 3] = flag(0, "DeepSpeed ZeRO stage; 3 shards the reference, too")
    offload: Literal["none", "reference", "optimizer", "both"] = flag("none", "what is kept in host memory: the frozen initial model, Adam's state")
    tis_cap: RatioOrNone = flag(None, "take old log-probs from the engine, with ratios up to this")

    @property
    def no_critic(self) -> bool:
        """Whether the estimator needs no values."""
        return not has_critic(self.advantages)

    @property
    def continuations(self) -> int:
        """How many continuations the estimator needs of each state."""
        return continuations(self.advantages)

    @property
    def whiten(self) -> bool:
        """Whether advantages are scaled to mean 0 and variance 1."""
        return is_whitened(self.advantages)

    @property
    def reference(self) -> str:
        """Where the frozen initial model is kept: none, device, host or sharded."""
        if self.kl_coef == 0:
            return "none"
        if self.offload in ("reference", "both"):
            return "host"
        return "sharded" if self.zero_stage == 3 and not self.lora_rank else "device"

    @property
    def offload_optimizer(self) -> bool:
        """Whether Adam's state is kept in host memory."""
        return self.offload in ("optimizer", "both")


@dataclass
class Run:
    """run"""

    seed: Seed = flag(1, "seed of everything random")
    num_updates: Count = flag(300, "number of PPO updates")
    num_turns: CountOrNone = flag(None, "also end after the update that reaches this many turns")
    run_dir: Path | None = flag(None, "directory of the run (default: runs/<env>-seed<seed>-<time>)", type=folder, metavar="DIR")
    resume: Path | None = flag(None, "go on from the newest checkpoint of RUN; auto: of --run-dir, if a run is there", type=folder, metavar="RUN")
    save_interval: Count = flag(30, "updates between checkpoints")
    eval_interval: Whole = flag(30, "updates between evaluations; 0: none; more than --num-updates: of the trained model alone, not of the initial one")
    eval_episodes: Count = flag(256, "episodes of an evaluation")
    eval_only: bool = flag(False, "evaluate, report what the model says, and stop")
    track: Literal["none", "wandb"] = flag("none", "where metrics go besides TensorBoard")
    log_envs: Whole = flag(2, "environments whose turns are logged")
# fmt: on


PARTS = {
    "environment": Environment,
    "generation": Generation,
    "warm_up": WarmUp,
    "batch": Batch,
    "update": Update,
    "run": Run,
}


class Arguments(Namespace):
    """The settings of a run: `args.update` has those of the update, `vars(args)` has all."""

    def __getattr__(self, name: str):
        if name not in PARTS:
            raise AttributeError(name)
        part, values = PARTS[name], vars(self)
        return part(**{each.name: values[each.name] for each in fields(part)})


def get_args(
    argv: list[str] | None = None, program: str = "main.py", quick: bool = False
) -> Arguments:
    """Parse and check a command line. A mistake prints one line and exits with code 2.

    program: what messages call it; quick: nothing will run, so whether there is a GPU is guessed
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = Parser(program, usage="%(prog)s [flags]", description=ABOUT)
    for part in PARTS.values():
        add_flags(parser, part)
    try:
        typed, unknown = parser.parse_known_args([word for word in argv if word not in HELP])
        typed = vars(typed)
        settings = settings_of(typed, quick or bool(unknown or HELP & {*argv}))
        parser.set_defaults(**settings)  # for the help
        parser.parse_args(argv)  # prints the help, and refuses unknown flags
        return checked(settings, typed)
    except ValueError as error:
        parser.error(str(error))


def settings_of(typed: dict, quick: bool) -> dict:
    """Return name -> value of every setting but for the typed ones: the paper's, changed by the
    recipes, or those of the run that is resumed. `quick`: nothing will run."""
    resumed = resumed_run(typed)
    saved = saved_args(resumed) if resumed else {}
    saved = known_settings(saved, typed)
    for part in PARTS.values():
        check_kinds(part, saved, f"--resume {resumed}: its args.json")
    if typed.get("eval_only"):  # of a run that somebody else may have made
        only_saved = {name: value for name, value in saved.items() if name not in typed}
        refuse_foreign(resumed, only_saved, "type these flags (turnwise evaluate: --trust)")
    return defaults(typed, quick) | saved


def known_settings(saved: dict, typed: dict) -> dict:
    """Return the settings of an earlier run that this version has. Without them all, the run can
    only be evaluated: a UserError says so."""
    others = saved.keys() - paper().keys() - {"defaults"}
    if others and not typed.get("eval_only"):
        raise UserError(
            f"--resume {typed['resume']}: an earlier version made this run ({listed(others)}), and "
            "this one cannot go on with it; --eval-only evaluates its model"
        )
    return {name: value for name, value in saved.items() if name not in others}


def checked(settings: dict, typed: dict) -> Arguments:
    """Put the typed flags over the other settings. Raise a UserError if they do not go together."""
    resumed = resumed_run(typed)
    args = Arguments(**settings | typed | {"resume": resumed})
    refuse_changes(args, settings if resumed else {})
    for part in PARTS:
        check_ranges(getattr(args, part))
    check(args)
    check_data(args.env_name, args.data)
    check_prompts(args.env_name, args.prompts)
    check_weak(args.env_name, args.group_size)
    check_method(args)
    refuse_unused(args, typed)
    return args


def paper() -> dict:
    """Return name -> value of the paper's settings, in the order of the loop."""
    return {name: x for part in PARTS.values() for name, x in defaults_of(part).items()}


def defaults(typed: dict, quick: bool) -> dict:
    """Return name -> default of every setting: the paper's, changed by the recipes.

    `quick` guesses whether there is a GPU. The settings in `typed` decide which recipes apply.
    """
    settings = paper()
    name, model = typed.get("env_name", settings["env_name"]), typed.get("model")
    known = hidden_size(model) if model else None
    # Without --model the recipe names it: an embedded one where there is no GPU.
    width = (known or INF) if model or has_gpu(quick) else 0
    chosen = typed.get("advantages", settings["advantages"])
    settings |= recipe(family(one_of(name)), width, key_of(chosen), has_critic(chosen))
    settings |= implied(settings | typed, settings)
    settings["defaults"] = None
    if model:
        size = known or "unknown"
        settings["defaults"] = f"{made_for(width)}: the model's hidden size is {size}"
    return settings


def implied(chosen: dict, default: dict) -> dict:
    """Return the defaults that follow from other settings, which may be typed."""
    turns = chosen["n_env"] * chosen["e_len"]
    return {
        "env_workers": min(default["env_workers"], chosen["n_env"]),
        "minibatch": min(default["minibatch"], turns),
        "lr": max(default["lr"], LORA_LR) if lora_rank(chosen["train"]) else default["lr"],
        "eval_interval": min(default["eval_interval"], chosen["num_updates"]),
        "log_envs": min(default["log_envs"], chosen["n_env"]),
    }


def has_gpu(quick: bool) -> bool:
    """Return whether torch can use a GPU. `quick` guesses it: importing torch takes seconds."""
    if quick:
        return which("nvidia-smi") is not None
    print_status(LOADING)
    import torch

    return torch.cuda.is_available()


def command_line(args: Arguments) -> str:
    """Return a command line with all settings that it may name, a flag per line."""
    words, skipped = ["python main.py"], unused(args)
    for name in paper():
        value = getattr(args, name)
        if value is None or value is False or name in skipped:
            continue
        if isinstance(value, dict):
            value = "FILE" if name == "prompts" else json.dumps(value)
        words.append(
            spelled(name) if value is True else f"{spelled(name)} {quote(masked(str(value)))}"
        )
    return " \\\n    ".join(words)


def main(argv: list[str] | None = None) -> int:
    """Print all settings of a command line, as a command line: `turnwise recipe`."""
    name = "python -m arguments"
    args = get_args(argv, name, quick=True)
    return run_printing(lambda: print(command_line(args)), name)


if __name__ == "__main__":
    sys.exit(main())
