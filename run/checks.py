"""Which settings do not go together. Each check raises a UserError that says what to type instead.

Only the standard library is imported here, so that a mistake is answered at once. Checks that need
the model or an environment stand where these are made.
"""

import resource
from importlib.util import find_spec

from common.engine_flag import check_engine, check_sharing
from common.estimator import GROUPED, continuations
from common.execution import execution
from common.masked import MASK, masked
from common.plugins import UserError
from common.trained import ALL

MAX_TURNS = 10**6  # of a batch, which is held in host memory
FILES = 100  # open files of a run besides its environments: libraries, logs, checkpoints
FILES_OF_A_WORKER = 3  # a pipe and a sentinel; evaluations and continuations have their own
FILES_OF_AN_AGENT = 5  # both ends of its connection, and an async program's event loop


def check(args) -> None:
    """Check the settings that every run needs, also one that only evaluates."""
    if args.temperature == 0 and not args.eval_only:
        raise UserError("--temperature must be above 0 in training; 0 (greedy) is for --eval-only")
    if args.track == "wandb" and find_spec("wandb") is None:
        raise UserError("--track wandb needs the package wandb: pip install wandb")
    check_engine(args.engine)
    check_batch(args)
    check_environments(args)
    check_reference(args)


def check_shares(args, size: int) -> None:
    """UserError: `size` ranks cannot share environments, minibatches or engines evenly."""
    n_env, group_size = args.n_env, 1 if args.eval_only else max(1, args.group_size)
    if n_env % size:
        raise UserError(f"--n-env {n_env} does not divide among {size} ranks")
    if n_env // size % group_size:
        share = f"the {n_env // size} environments of each of {size} ranks"
        raise UserError(f"--group-size {group_size} does not divide {share}")
    if args.minibatch < size:
        raise UserError(f"--minibatch {args.minibatch} is less than a turn for each rank")
    check_sharing(args.engine, size)


def check_batch(args) -> None:
    turns = args.n_env * args.e_len
    batch = f"n_env x e_len = {args.n_env} x {args.e_len} = {turns} turns"
    if turns * max(1, args.w_epoch) > MAX_TURNS:
        times = f" ({args.w_epoch} times for the warm-up)" if args.w_epoch > 1 else ""
        raise UserError(f"{batch}{times} are more than the {MAX_TURNS} that fit into memory")
    if not (args.eval_only or args.group_size) and turns % args.minibatch:
        raise UserError(f"{batch} do not divide into minibatches of {args.minibatch}")


def check_environments(args) -> None:
    if max(execution(args.env_workers)[:2]) > args.n_env:
        raise UserError(f"--env-workers {args.env_workers} is more than --n-env {args.n_env}")
    check_open_files(args)
    is_agent = args.env_name.startswith("agent:")
    if is_agent != (args.memory == "verbatim") and ":" not in args.memory:
        raise UserError(f"--memory {args.memory} with {args.env_name}: agents have verbatim, alone")
    check_url(args.upstream)
    if args.upstream and f"://{MASK}" in args.upstream:
        message = "args.json keeps no passwords; type the URL again"
        raise UserError(f"--upstream {args.upstream}: {message}")
    if args.endpoint_sampling == "untrained":
        bad = ["--group-size"] * bool(args.group_size)
        bad += ["--engine transformers"] * (args.engine == "transformers")
        bad += [f"--memory {args.memory}"] * (args.memory != "verbatim")
        if bad:
            raise UserError(f"--endpoint-sampling untrained does not go with {bad[0]}")


def check_url(upstream: str | None) -> None:
    """UserError: --upstream is given, and is no URL"""
    if upstream and not upstream.startswith(("http://", "https://")):
        line = f"--upstream {masked(upstream)}: a URL begins with http:// or https://"
        raise UserError(line)


def check_open_files(args) -> None:
    """UserError: the environments of a process need more open files than it may have"""
    processes = execution(args.env_workers).processes
    pools = 2 + bool(continuations(args.advantages))
    needed = FILES + FILES_OF_A_WORKER * pools * processes
    if args.env_name.startswith("agent:"):
        needed += FILES_OF_AN_AGENT * -(-args.n_env // max(1, processes))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and needed > limit:
        line = f"--n-env {args.n_env} needs some {needed} open files, and the limit is {limit}"
        raise UserError(f"{line}: raise it (ulimit -Hn), or spread agents over --env-workers K")


def check_reference(args) -> None:
    if args.offload in ("reference", "both"):
        if args.kl_coef == 0:
            raise UserError(f"--kl-coef 0 has no reference for --offload {args.offload}")
        if args.train != ALL:
            problem = f"has no copy as a reference for --offload {args.offload}"
            raise UserError(f"--train {args.train} {problem}")
    if args.update.top_layers and args.zero_stage == 3:
        raise UserError(f"--train {args.train} needs --zero-stage 0, 1 or 2")
    if args.update.offload_optimizer and not args.zero_stage:
        raise UserError(f"--offload {args.offload} needs --zero-stage 1, 2 or 3")
    if args.kl_target is not None and args.kl_coef == 0:
        raise UserError("--kl-target scales --kl-coef, which must be above 0 for it, got 0.0")


def check_method(args) -> None:
    """Check that estimator, batches and learning rates fit, if the run trains."""
    if args.eval_only:
        return
    check_groups(args)
    if args.num_turns and args.lr_schedule == "linear":
        raise UserError(
            "--lr-schedule linear falls to 0 over --num-updates, which --num-turns may end before: "
            "it needs --lr-schedule constant"
        )


def check_groups(args) -> None:
    name, size = args.advantages, args.group_size
    if continuations(name) and args.env_name.startswith("agent:"):
        raise UserError(
            f"--advantages {name} plays each state on several times, and an agent's program may "
            "act on the world; it does not go with --env-name agent:..."
        )
    if size and args.n_env % size:
        raise UserError(f"--group-size {size} does not divide --n-env {args.n_env}")
    if name in GROUPED and size < 2:
        raise UserError(
            f"--advantages {name} compares whole episodes that begin from one seed: it needs "
            f"--group-size 2 or more, got {size}"
        )
