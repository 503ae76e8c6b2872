"""Flags that would change nothing: a run is refused that is given one.

Only the standard library is imported here, so that a mistake is answered at once.
"""

from common.estimator import key_of
from common.flags import spelled
from common.plugins import UserError

OF_A_CRITIC = (
    "critic_layers",
    "critic_lr",
    "value_clip",
    "first_token_weight",
    "w_iter",
    "w_lr",
    "w_fraction",
    "use_proper_time_limits",
)
OF_TURNS, OF_TOKENS = ("gamma_step", "lam_step"), ("gamma_token", "lam_token")
UNUSED = {
    "token-gae": OF_TURNS,
    "turn-gae": OF_TOKENS,
    "rloo": OF_TURNS + OF_TOKENS,
    "grpo": OF_TURNS + OF_TOKENS,
    "gigpo": ("lam_step", *OF_TOKENS),
    "vine": ("lam_step", *OF_TOKENS),
}
# An evaluation may have the flags of the trained run that say what is loaded and how it computes:
# --train, --critic-layers, --dtype, ...
OF_TRAINING = (
    "w_epoch", "w_iter", "w_fraction", "w_lr", "e_len", "group_size", "use_proper_time_limits",
    "gamma_step", "lam_step", "gamma_token", "lam_token", "kl_in", "kl_coef", "kl_target", "lr",
    "critic_lr", "lr_schedule", "ppo_epoch", "minibatch", "clip", "value_clip",
    "first_token_weight", "entropy_coef", "max_grad_norm", "tis_cap", "num_updates", "num_turns",
    "save_interval", "eval_interval", "token_budget", "rows", "gradient_checkpointing",
)  # fmt: skip


def refuse_unused(args, typed: dict) -> None:
    """UserError: a flag in `typed` would change nothing; the line says why"""
    if args.memory in ("full", "verbatim") and "memory_length" in typed:
        raise UserError(f"--memory {args.memory} shows every turn; leave --memory-length out")
    if typed.get("log_envs", 0) > args.n_env:
        raise UserError(f"--log-envs {args.log_envs} is more than --n-env {args.n_env}")
    if typed.get("upstream") and not args.env_name.startswith("agent:"):
        raise UserError(f"--upstream is for agents, and {args.env_name} is none; leave it out")
    if "history_thinking" in typed and args.memory == "verbatim":
        line = "an agent's program decides what it sends again"
        raise UserError(f"{line}; leave --history-thinking out")
    if args.eval_only:
        if given := [flag for flag in OF_TRAINING if flag in typed]:
            raise UserError(f"--eval-only trains nothing; leave {listed(given)} out")
        return
    if "token_budget" in typed and args.token_budget < longest_turn(args):
        raise UserError(
            f"--token-budget {args.token_budget} is below a turn of --prompt-limit + "
            f"--response-limit = {longest_turn(args)} tokens, which is the least"
        )
    refuse_unused_by_estimator(args, typed)


def refuse_unused_by_estimator(args, typed: dict) -> None:
    name = args.advantages
    given = [flag for flag in OF_A_CRITIC if flag in typed] + ["w_epoch"] * (args.w_epoch > 0)
    if args.update.no_critic and given:
        raise UserError(
            f"without a critic there is nothing for {listed(given)} to set; leave it out "
            f"(--advantages {name})"
        )
    if given := [flag for flag in UNUSED.get(key_of(name), ()) if flag in typed]:
        raise UserError(f"--advantages {name} has no {listed(given)}; leave it out")


def longest_turn(args) -> int:
    """Return the tokens of the longest turn. A forward pass has one turn, however small its
    budget."""
    return args.prompt_limit + args.response_limit


def listed(names) -> str:
    return ", ".join(map(spelled, sorted(names)))


def unused(args) -> set[str]:
    """Return the names of the settings that a run with these arguments does not read."""
    names = {*UNUSED.get(key_of(args.advantages), ())}
    if args.update.no_critic:
        names |= {*OF_A_CRITIC, "w_epoch"}
    if args.memory in ("full", "verbatim"):
        names |= {"memory_length"}
    if args.memory == "verbatim":
        names |= {"history_thinking"}
    if args.eval_only:
        names |= {*OF_TRAINING}
    if args.token_budget < longest_turn(args):
        names |= {"token_budget"}
    return names
