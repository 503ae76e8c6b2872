"""Every flag, its default and its checks. Defaults are the paper's BabyAI run. Families and
small models override some of them (tables below), and what is typed overrides both.
"""

import argparse
import json
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import envs
from common.cli import Parser, is_main, life_sign
from common.plugins import UserError
from envs import LIBRARIES, check_data, check_prompts, family
from envs.prompts import prompts_of
from run.earlier import folder, hidden_size, model_path, refuse_changes, resumed_run, saved_args

ROOT = Path(__file__).resolve().parent
MODELS = ROOT / "models"  # the embedded models
TINY = MODELS / "tiny"

PAPER = dict(
    model="Qwen/Qwen2.5-3B-Instruct", n_env=32, e_len=8, num_updates=300, minibatch=128,
    ppo_epoch=1, lr=1e-6, critic_lr=1e-5, w_epoch=40, w_iter=5, w_lr=1e-5, w_fraction=0.1,
    critic_layers=2, value_clip=0.5, prompt_limit=1024, response_limit=512, memory_length=1,
    token_budget=4096, env_workers=0, memory="window", first_token_weight=3.0, gamma_step=0.99,
    lam_step=0.95, gamma_token=1.0, lam_token=1.0, whiten="on", kl_in="reward", kl_coef=0.001,
)  # fmt: skip
# Of a rank's processors the trainer needs one, and more than eight workers have little to do.
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
WORKERS = max(0, min(PROCESSORS // int(os.environ.get("LOCAL_WORLD_SIZE", 1)) - 1, 8))
FAMILIES = {
    "agent": dict(memory="verbatim", prompt_limit=4096),  # the program remembers by itself
    "babaisai": dict(response_limit=384, w_iter=10),
    "calculator": dict(memory_length=8),  # all turns of an episode
    "gsm8k": dict(prompt_limit=3072, memory_length=8),  # all turns: one may need an earlier result
    "shop": dict(memory_length=8),  # turns: the whole episode
    "crafter": dict(
        model="Qwen/Qwen2.5-7B-Instruct", n_env=128, e_len=16, num_updates=170, minibatch=1024,
        w_epoch=20, w_iter=20, value_clip=float("inf"), prompt_limit=4096,
        env_workers=WORKERS,  # idle ones make the next worlds
    ),
    "guess": dict(memory_length=8),  # the whole dialogue
    "tools": dict(memory_length=8, prompt_limit=4096),  # a user's class
    **{library: dict(prompt_limit=4096) for library in LIBRARIES},  # rules, boards, long questions
}  # fmt: skip
# A model below this hidden size takes the defaults of the embedded models. The size, unlike the
# name of a directory, is the same in what a run exports and in every copy of it.
NARROW = 512  # pretrained chat models are wider
EMBEDDED = dict(
    model=str(TINY), num_updates=40, ppo_epoch=2, lr=2e-4, critic_lr=3e-4, w_iter=6, w_lr=5e-4,
    w_fraction=0.2, critic_layers=1, response_limit=32, eval_interval=20,
    env_workers=0,  # workers change the engine's batches, and with them the last bits of a run
)  # fmt: skip
# Estimators other than the paper's bring the settings that they were published with. Those without
# a critic leave the scale of their advantages as it is; GRPO's and GiGPO's KL is part of the loss.
NO_CRITIC = dict(no_critic=True, critic_layers=0, w_epoch=0)
METHODS = {
    "turn-gae": dict(first_token_weight=float("inf")),  # one value a turn
    "rloo": NO_CRITIC | dict(whiten="off", kl_coef=0.03),
    "grpo": NO_CRITIC | dict(whiten="off", kl_in="loss", kl_coef=0.04),
    "gigpo": NO_CRITIC | dict(whiten="off", kl_in="loss", kl_coef=0.01, gamma_step=0.95),
}
GROUPED = ("rloo", "grpo", "gigpo")  # they compare the episodes of a group
# Typed flags that would change nothing
OF_A_CRITIC = (
    "critic_layers critic_lr value_clip value_grad_trunk first_token_weight w_iter w_lr w_fraction "
    "use_proper_time_limits"
)
UNUSED = {
    "token-gae": "gamma_step lam_step",
    "turn-gae": "gamma_token lam_token",
    "rloo": "gamma_step lam_step gamma_token lam_token",
    "grpo": "gamma_step lam_step gamma_token lam_token",
    "gigpo": "lam_step gamma_token lam_token",
}
LOADING = "loading libraries ..."
HELP = ("-h", "--help")
ABOUT = """Train a language model as an agent with PPO, or evaluate one. The defaults shown are
those of the environment and the model that you type. They are the paper's; some environments and
the small embedded models, which play where there is no GPU, have others."""
ENGINE_NAMES = ("auto", "vllm", "transformers")
LORA_LR = 1e-4  # the least: in bf16 the merged weights would round smaller updates away
CALCULATOR = dict(
    model=str(MODELS / "tiny-calculator"), num_updates=80, lr=4e-4, critic_lr=1e-3,
    lr_schedule="linear", w_epoch=20, w_iter=8, w_lr=2e-3, critic_layers=2, eval_interval=40,
)  # fmt: skip
EMBEDDED_FAMILIES = {
    "agent": CALCULATOR,  # as examples/ ask: few embedded models call tools
    "babaisai": dict(model=str(MODELS / "tiny-babaisai")),
    "calculator": CALCULATOR,
    "crafter": dict(
        model=str(MODELS / "tiny-crafter"), n_env=32, minibatch=64, w_epoch=10, num_updates=120,
        lr_schedule="linear", kl_coef=0.01, eval_interval=60, eval_episodes=64,
    ),
    "guess": dict(
        model=str(MODELS / "tiny-guess"), num_updates=60, minibatch=64, lr=1.5e-4, critic_lr=5e-4,
        lr_schedule="linear", kl_coef=0.01, w_epoch=8, response_limit=16, eval_interval=30,
    ),
    "tools": CALCULATOR,
    "shop": dict(
        model=str(MODELS / "tiny-shop"), num_updates=60, lr=3e-4, critic_lr=5e-4, minibatch=64,
        w_epoch=8,
    ),
    "textarena": dict(  # as FrozenLake asks: no other embedded model plays one of its games
        model=str(MODELS / "tiny-frozen-lake"), num_updates=60, lr=3e-4, critic_lr=5e-4,
        minibatch=64, w_epoch=8, response_limit=16,
    ),
}  # fmt: skip


def get_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the checked arguments. A mistake prints one line and exits with code 2."""
    parser = Parser("main.py", usage="%(prog)s [flags]", description=ABOUT)
    group = parser.add_argument_group("environment and memory").add_argument
    group("--env-name", default="babyai-goto",
          help="what is played: a name of --list-envs, or one of your own: module:EnvId of "
          "gymnasium, tools:module:Class, agent:module:function")  # fmt: skip
    group("--list-envs", action=ListEnvs, nargs=0, default=argparse.SUPPRESS,
          help="print the names of environments and stop")  # fmt: skip
    group("--n-env", type=int, help="number of environments that play in parallel")
    group("--max-episode-steps", type=int, help="turns of an episode (default: the task's limit)")
    group("--format-penalty", type=float, default=0.1, help="cost of a turn without a valid action")
    group("--on-invalid", choices=["default", "end"], default="default",
          help="what such a turn does: the default action, or end the episode")  # fmt: skip
    group("--env-workers", type=int, help="processes of the environments; 0: the trainer's own")
    group("--env-threads", type=int, default=0,
          help="threads instead, for environments that wait, without a time limit")  # fmt: skip
    group("--env-timeout", type=float, default=300,
          help="seconds that a turn may take, with workers and for agents")  # fmt: skip
    group("--data", metavar="PATH", type=os.path.abspath,
          help="gsm8k's rows, JSONL or parquet (default: made ones)")  # fmt: skip
    group("--prompts", type=prompts_of, metavar="FILE",
          help="your own prompts in the place of ours, TOML: docs/environments.md")  # fmt: skip
    group("--endpoint-sampling", choices=["refuse", "run", "untrained"], default="refuse",
          help="agents that ask for top_p and the like: refuse them, sample as the run does, or "
          "answer untrained: as asked, but as no sample")  # fmt: skip
    group("--upstream", metavar="URL", help="base URL that answers agents about other models")
    group("--memory", help="window, action, periodic, full, verbatim or module:Class")
    group("--memory-length", type=int, help="past turns that the prompt shows")
    group("--history-thinking", choices=["keep", "strip"], default="keep",
          help="whether later prompts show what was between <think> and </think>")  # fmt: skip
    group = parser.add_argument_group("generation").add_argument
    group("--model", type=model_path, help="directory, run or hub name of a Hugging Face model")
    group("--engine", default="auto",
          help="vllm, transformers or module:Class; auto: the faster of the two")  # fmt: skip
    group("--gpu-memory-utilization", type=float, default=0.3, help="vLLM's share of the GPU")
    group("--template-kwargs", type=json_object, default={}, metavar="JSON",
          help='arguments of the chat template, as in \'{"enable_thinking": false}\'')  # fmt: skip
    group("--temperature", type=float, default=1.0, help="sampling temperature; 0 is greedy")
    group("--prompt-limit", type=int, help="tokens of a prompt; the oldest turns are dropped")
    group("--response-limit", type=int, help="tokens of a response; a longer one is cut off")
    group = parser.add_argument_group("critic warm-up").add_argument
    group("--w-epoch", type=int, help="batches that the warm-up collects; 0: no warm-up")
    group("--w-iter", type=int, help="rounds of critic training on these batches")
    group("--w-fraction", type=float, help="share of the turns that a round trains on")
    group("--w-lr", type=float, help="learning rate of the critic during the warm-up")
    group = parser.add_argument_group("advantages").add_argument
    group("--advantages", default="dual-gae",
          help="dual-gae, token-gae, turn-gae, rloo, grpo, gigpo or module:function")  # fmt: skip
    group("--no-critic", action="store_true",
          help="train without values, as rloo, grpo and gigpo always do")  # fmt: skip
    group("--e-len", type=int, help="turns of each environment per update")
    words = "collect whole episodes, this many from one seed; 0: exactly --e-len turns of each"
    group("--group-size", type=int, default=0, help=words)
    words = "least turns of a batch of whole episodes (default: n_env x e_len)"
    group("--turns-per-update", type=int, help=words)
    group("--gamma-step", type=float, help="discount from turn to turn")
    group("--lam-step", type=float, help="GAE lambda from turn to turn")
    group("--gamma-token", type=float, help="discount from token to token")
    group("--lam-token", type=float, help="GAE lambda from token to token")
    group("--whiten", choices=["on", "off"], help="scale advantages to mean 0, variance 1")
    group("--use-proper-time-limits", action="store_true",
          help="let V stand for the rest at a time limit, which is else a failure")  # fmt: skip
    group("--kl-in", choices=["reward", "loss"], help="which of them has the KL penalty")
    group("--kl-coef", type=float, help="beta of the KL penalty")
    group("--kl-estimator", choices=["k1", "k2", "k3"], help="estimator of the penalty's KL")
    group("--kl-target", type=float, help="KL per token that beta adapts to (default: none)")
    group = parser.add_argument_group("update").add_argument
    group("--num-updates", type=int, help="number of PPO updates")
    group("--num-turns", type=int, help="also end after the update that reaches this many turns")
    group("--critic-layers", type=int, help="layers of the critic, the actor's last; 0: a head")
    group("--value-grad-trunk", action="store_true", help="let the value loss train the trunk")
    group("--lr", type=float, help="learning rate of the actor, or of its adapters")
    group("--critic-lr", type=float, help="learning rate of the critic")
    group("--lr-schedule", choices=["constant", "linear"], default="constant",
          help="linear: both learning rates fall to 0")  # fmt: skip
    group("--ppo-epoch", type=int, help="passes over a batch")
    group("--minibatch", type=int, help="turns per optimizer step")
    group("--token-budget", type=int, help="padded tokens per forward pass")
    group("--merge-turns", choices=["auto", "on", "off"], default="auto",
          help="turns that extend one another share a row; auto: if it saves a tenth")  # fmt: skip
    group("--clip", type=float, default=0.2, help="clip range of the probability ratio")
    group("--value-clip", type=float, help="clip range of value changes; inf: off")
    words = "weight of a turn's first token in the value loss; inf: it alone counts"
    group("--first-token-weight", type=float, help=words)
    group("--entropy-coef", type=float, default=0.0, help="coefficient of the entropy bonus")
    group("--max-grad-norm", type=float, default=1.0, help="clips the gradient; inf: off")
    group("--dtype", choices=["auto", "float32", "bfloat16"], default="auto",
          help="dtype of activations; auto: bfloat16 on a GPU")  # fmt: skip
    group("--gradient-checkpointing", action="store_true", help="recompute activations")
    group("--packed", choices=["auto", "on", "off"], default="auto",
          help="train without padding; auto: on a GPU in bfloat16")  # fmt: skip
    group("--lora-rank", type=int, default=0, help="rank of LoRA adapters; 0: train all weights")
    group("--reference", choices=["device", "host", "sharded", "none"],
          help="where the model that KL refers to rests; none: there is none")  # fmt: skip
    group("--zero-stage", type=int, choices=[0, 1, 2, 3], default=0, help="DeepSpeed ZeRO stage")
    group("--offload-optimizer", action="store_true", help="keep Adam's state in host memory")
    group("--tis-cap", type=float,
          help="take old log-probs from the engine, with ratios up to this")  # fmt: skip
    group = parser.add_argument_group("run").add_argument
    group("--seed", type=int, default=1, help="seed of everything random")
    group("--run-dir", type=folder, metavar="DIR",
          help="directory of the run (default: runs/<env>-seed<seed>-<time>)")  # fmt: skip
    words = "go on from the newest checkpoint of RUN; auto: of --run-dir, if a run is there"
    group("--resume", type=folder, metavar="RUN", help=words)
    group("--override", action="store_true", help="let typed flags change the resumed run")
    group("--save-interval", type=int, default=30, help="updates between checkpoints")
    group("--eval-interval", type=int, default=30, help="updates between evaluations; 0: none")
    group("--skip-first-eval", action="store_true", help="do not evaluate the initial model")
    group("--eval-episodes", type=int, default=256, help="episodes of an evaluation")
    group("--eval-only", action="store_true", help="evaluate, report what the model says, stop")
    group("--dry-run-memory", action="store_true", help="estimate bytes and seconds, and stop")
    group("--track", choices=["none", "wandb"], default="none",
          help="where the figures go besides TensorBoard")  # fmt: skip
    group("--log-envs", type=int, default=2, help="environments whose turns are logged")
    try:
        typed = sys.argv[1:] if argv is None else argv
        known, wrong = parser.parse_known_args([word for word in typed if word not in HELP])
        known.help = bool(wrong or set(HELP) & {*typed})  # nothing will run
        resumed = resumed_run(known)
        saved = saved_args(resumed) if resumed else {}
        if known.env_threads or known.env_workers:  # what is typed replaces the other kind
            saved = {k: v for k, v in saved.items() if k not in ("env_workers", "env_threads")}
        parser.set_defaults(**(defaults(known) | saved))
        args = parser.parse_args(argv)
        args.resume = resumed
        refuse_changes(args, vars(parser.parse_args([])) if resumed else {})
        check(args)
        if not args.eval_only:
            check_method(args, known)
        if args.memory in ("full", "verbatim") and known.memory_length is not None:
            raise UserError(f"--memory {args.memory} shows every turn; leave --memory-length out")
        if known.skip_first_eval and known.eval_only:  # as typed, not as a resumed run had it
            raise UserError("--eval-only is the evaluation that --skip-first-eval leaves out")
    except ValueError as error:
        parser.error(str(error))
    return args


def json_object(text: str) -> dict:
    """The type of --template-kwargs."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(given, dict) or not all(map(str.isidentifier, given)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object of names and values")
    for name in sorted({"messages", "tools", "documents", "add_generation_prompt"} & given.keys()):
        raise argparse.ArgumentTypeError(f"{name} is given to the template in each prompt")
    return given


def defaults(known: argparse.Namespace) -> dict:
    """The paper's run, overridden by the family's and by a small model's (without a GPU)."""
    name, width = family(known.env_name), known.model and hidden_size(known.model)
    small = (width or NARROW) < NARROW if known.model else not has_gpu(known.help)
    chosen = PAPER | FAMILIES.get(name, {})
    if small:
        chosen |= EMBEDDED | EMBEDDED_FAMILIES.get(name, {})
    chosen |= METHODS.get(known.advantages, NO_CRITIC if known.no_critic else {})
    in_loss = (known.kl_in or chosen["kl_in"]) == "loss"
    chosen |= dict(kl_estimator="k3" if in_loss else "k1")  # the gradient of k1 is noise alone
    if known.lora_rank:
        chosen |= dict(lr=max(chosen["lr"], LORA_LR))
    n_env, e_len = known.n_env or chosen["n_env"], known.e_len or chosen["e_len"]
    turns = known.turns_per_update or n_env * e_len
    chosen |= dict(minibatch=min(chosen["minibatch"], turns))
    chosen |= dict(turns_per_update=turns if known.group_size else None)
    chosen |= dict(env_workers=0 if known.env_threads else min(chosen["env_workers"], n_env))
    why = f"{'' if small else 'not '}narrower than {NARROW} (hidden size: {width or 'unknown'})"
    said = known.model and f"the {'embedded models' if small else 'paper'}: the model is {why}"
    return chosen | dict(reference="none" if known.kl_coef == 0 else "device", defaults=said)


def has_gpu(quick: bool) -> bool:
    """Return whether torch can use a GPU. quick: guess it, for torch takes seconds to import"""
    if quick:
        return which("nvidia-smi") is not None
    life_sign(LOADING)
    import torch

    return torch.cuda.is_available()


MAX_TURNS = 10**6  # of a batch, which is held in host memory
MANY, INF = 10**9, float("inf")
RANGES = [
    # what a flag must be in words and in code (nan fails each test), and the flags
    ("from 1 to 1000000000", lambda x: 1 <= x <= MANY,
     "n_env e_len num_updates minibatch ppo_epoch token_budget prompt_limit response_limit "
     "eval_episodes save_interval w_iter max_episode_steps num_turns turns_per_update"),
    ("from 0 to 1000000000", lambda x: 0 <= x <= MANY,
     "w_epoch memory_length env_workers env_threads eval_interval log_envs critic_layers "
     "lora_rank group_size"),
    ("from 0 to 2**32 - 1", lambda x: 0 <= x < 2**32, "seed"),
    ("in [0, 1]", lambda x: 0 <= x <= 1,
     "gamma_step lam_step gamma_token lam_token lr critic_lr w_lr"),
    ("in (0, 1]", lambda x: 0 < x <= 1, "w_fraction gpu_memory_utilization"),
    ("at least 0 and finite", lambda x: 0 <= x < INF, "kl_coef entropy_coef format_penalty"),
    ("above 0 and finite", lambda x: 0 < x < INF, "kl_target"),
    ("above 0 (inf: first tokens alone)", lambda x: x > 0, "first_token_weight"),
    ("at least 1", lambda x: x >= 1, "tis_cap"),
    ("above 0 (inf: off)", lambda x: x > 0, "clip value_clip max_grad_norm env_timeout"),
    ("0 or from 0.001 to 1000", lambda x: x == 0 or 0.001 <= x <= 1000, "temperature"),
]  # fmt: skip


def check(args: argparse.Namespace) -> None:
    """ValueError: the arguments cannot work; one line says why."""
    for words, allowed, names in RANGES:
        for name in names.split():
            value = getattr(args, name)
            if value is not None and not allowed(value):
                raise UserError(f"--{name.replace('_', '-')} must be {words}, got {value}")
    if args.temperature == 0 and not args.eval_only:
        raise UserError("--temperature must be above 0 in training; 0 (greedy) is for --eval-only")
    check_data(args.env_name, args.data)
    check_prompts(args.env_name, args.prompts)
    if args.track == "wandb" and find_spec("wandb") is None:
        raise UserError("--track wandb needs the package wandb: pip install wandb")
    turns = args.turns_per_update or args.n_env * args.e_len
    batch = f"n_env x e_len = {args.n_env} x {args.e_len} = {turns} turns"
    batch = f"--turns-per-update {turns}" if args.turns_per_update else batch
    if turns * max(1, args.w_epoch) > MAX_TURNS:
        times = f" ({args.w_epoch} times for the warm-up)" if args.w_epoch > 1 else ""
        raise UserError(f"{batch}{times} are more than the {MAX_TURNS} that fit into memory")
    if not (args.eval_only or args.group_size) and turns % args.minibatch:
        raise UserError(f"{batch} do not divide into minibatches of {args.minibatch}")
    if ":" not in args.engine and args.engine not in ENGINE_NAMES:
        choices = f"choices: {', '.join(ENGINE_NAMES)}, or module:name of your own"
        raise UserError(f"unknown engine {args.engine!r}; {choices}")
    if args.env_workers and args.env_threads:
        both = f"--env-workers {args.env_workers} and --env-threads {args.env_threads}"
        raise UserError(f"{both}: environments live in processes or in threads, not in both")
    for name, count in (("workers", args.env_workers), ("threads", args.env_threads)):
        if count > args.n_env:
            raise UserError(f"--env-{name} {count} is more than --n-env {args.n_env}")
    if (family(args.env_name) == "agent") != (args.memory == "verbatim") and ":" not in args.memory:
        raise UserError(f"--memory {args.memory} with {args.env_name}: agents have verbatim, alone")
    if args.upstream and not args.upstream.startswith(("http://", "https://")):
        raise UserError(f"--upstream {args.upstream}: a URL begins with http:// or https://")
    if args.endpoint_sampling == "untrained":
        bad = ["--group-size"] * bool(args.group_size)
        bad += ["--engine transformers"] * (args.engine == "transformers")
        bad += [f"--memory {args.memory}"] * (args.memory != "verbatim")
        if bad:
            raise UserError(f"--endpoint-sampling untrained does not go with {bad[0]}")
    if args.reference == "sharded" and args.zero_stage != 3:
        raise UserError("--reference sharded needs --zero-stage 3")
    if args.reference == "none" and args.kl_coef > 0:
        raise UserError("without a reference --kl-coef must be 0; --reference device has one")
    if args.lora_rank and args.reference in ("host", "sharded"):
        raise UserError(f"--lora-rank has no copy as a reference for --reference {args.reference}")
    if args.offload_optimizer and not args.zero_stage:
        raise UserError("--offload-optimizer needs --zero-stage 1, 2 or 3")
    if args.kl_target is not None and args.kl_coef == 0:
        raise UserError("--kl-target scales --kl-coef, which must be above 0 for it, got 0.0")


def check_method(args: argparse.Namespace, known: argparse.Namespace) -> None:
    """ValueError: estimator, batches, critic and KL do not go together, or a typed flag would
    change nothing."""
    name, size = args.advantages, args.group_size
    is_typed = lambda value: value is not None and value is not False
    typed = lambda names: [n for n in names.split() if is_typed(getattr(known, n))]
    flags = lambda names: ", ".join(f"--{n.replace('_', '-')}" for n in names)
    if size and args.n_env % size:
        raise UserError(f"--group-size {size} does not divide --n-env {args.n_env}")
    if name in GROUPED and size < 2:
        raise UserError(f"--advantages {name} compares whole episodes that begin from one seed: "
                         f"it needs --group-size 2 or more, got {size}")  # fmt: skip
    if size and known.e_len is not None:
        raise UserError("--e-len cuts episodes into batches of equal turns; with --group-size, "
                         "which keeps them whole, give --turns-per-update")  # fmt: skip
    if not size and known.turns_per_update is not None:
        raise UserError("--turns-per-update is about whole episodes: it goes with --group-size; "
                         "other batches have n_env x e_len turns")  # fmt: skip
    if args.no_critic and name not in GROUPED and ":" not in name:
        raise UserError(f"--advantages {name} needs a critic: leave --no-critic out")
    if args.no_critic and (given := typed(OF_A_CRITIC) + ["w_epoch"] * (args.w_epoch > 0)):
        raise UserError(f"without a critic there is nothing for {flags(given)} to set; leave it "
                         f"out (--advantages {name})")  # fmt: skip
    if given := typed(UNUSED.get(name, "")):
        raise UserError(f"--advantages {name} has no {flags(given)}; leave it out")
    if args.kl_in == "loss" and args.kl_estimator == "k1" and args.kl_coef > 0:
        raise UserError("--kl-in loss needs --kl-estimator k2 or k3: "
                         "the gradient of k1 is 0 in expectation")  # fmt: skip
    if args.num_turns and args.lr_schedule == "linear":
        raise UserError("--lr-schedule linear falls to 0 over --num-updates, which --num-turns "
                         "may end before: it needs --lr-schedule constant")  # fmt: skip


class ListEnvs(argparse.Action):
    """--list-envs: print the names of environments and end the program."""

    def __call__(self, parser, *typed):
        print(*envs.names(), sep="\n")
        print(f"also your own: {', '.join(envs.FORMS)}")
        print(f"also library:name of {', '.join(envs.LIBRARIES)} (docs/ecosystems.md)")
        parser.exit()


if is_main():  # main.py imports this file first: what it answers does not wait for the others
    with suppress(Exception):  # an error that is no mistake on the command line is told later
        get_args()
    life_sign(LOADING)
