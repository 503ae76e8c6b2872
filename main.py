"""PPO for LLM agents that act over hundreds of turns: the algorithm at a glance.

    python main.py --env-name babyai-goto --n-env 32 --e-len 8

A turn (prompt, sampled response, environment step) is one training sample; a batch is exactly
E turns of each of N environments. What each verb does is in the file that its object comes from.
"""

import sys
import traceback
from functools import partial
from pathlib import Path

import torch

import memory
from arguments import get_args
from envs import make_env
from envs.pool.slot import EnvError
from envs.pool.vec_env import EpisodeSeeds, PanelSeeds, VecEnv
from memory.chat import make_render
from ppo.advantages import dual_discount_gae
from ppo.agent import Agent
from ppo.distributed import check_shares, make_ranks, make_stepper, shard
from ppo.engines.contract import make_engine
from ppo.evaluation import Panel
from ppo.fit.advice import dry_run
from ppo.kl import KLPenalty
from ppo.model.actor_critic import ActorCritic, AdaptersOff, Reference
from ppo.model.decoder import choose_dtype
from ppo.model.pretrained import load_lm
from ppo.reports.zero_shot import Transcript
from ppo.run.checkpoint import RunError, load_checkpoint, restore, save_checkpoint, snapshot
from ppo.run.directory import choose_run_dir, start_run_dir
from ppo.run.logger import Logger, Timer
from ppo.run.stop import Stop
from ppo.warmup import warm_up_critic
from storage.episodes import Episodes
from storage.rollout import RolloutStorage

ESTIMATORS = {"dual-gae": dual_discount_gae}  # --advantages


def collect(envs, memories, engine, render, rollouts, seed: int):
    """Fill `rollouts`: nobody waits for the slowest response or environment."""

    def ask(i: int) -> None:
        prompt = render(memories[i].messages())
        if rollouts.wants(i):
            engine.submit(i, prompt, seed=(seed, *envs.place(i)))
        else:
            rollouts.finish(i, prompt)

    for i in range(envs.n_env):
        ask(i)
    while not rollouts.full:
        for i, response in engine.step():  # responses that are complete
            rollouts.act(i, response)
            envs.send(i, response.text)
        for i, step in envs.poll(wait=engine.idle):  # environments that answered
            rollouts.insert(i, step)
            memories[i].update(step)
            if step.truncated:
                rollouts.limit(i, render(memories[i].messages()))
            if step.first is not None:
                memories[i].reset(step.first)
            ask(i)
    rollouts.join()  # of many ranks: now each holds the whole batch


def main(args):
    """Train or evaluate. Returns the exit code."""
    if args.dry_run_memory:
        return dry_run(args)
    ranks = make_ranks(args.zero_stage)
    check_shares(args, ranks)
    run = choose_run_dir(args, ranks)
    estimator = make_estimator(args)
    torch.manual_seed(args.seed)
    device, dtype = ranks.device, choose_dtype(args.dtype, ranks.device)
    lm, tokenizer, ends = load_lm(args.model, device, args.prompt_limit + args.response_limit)
    actor_critic = make_actor_critic(args, lm, dtype).to(device)
    reference = None if args.eval_only else make_reference(args, actor_critic)
    render = make_render(tokenizer, args.prompt_limit)
    kl = KLPenalty(args.kl_coef, args.kl_estimator, args.kl_target, args.kl_horizon)
    agent, episodes = make_agent(args, actor_critic, ranks), Episodes(args.n_env)
    saved = load_checkpoint(run) if args.resume else None
    parts = dict(agent=agent, kl=kl, episodes=episodes)
    start = restore(run, saved, parts)
    mine = ranks.share(args.n_env)
    envs = make_envs(args, [EpisodeSeeds(args.seed, 0, i) for i in mine])
    memories = start_memories(args, envs, saved and saved["envs"], mine)
    render(memories[0].messages())  # a prompt limit that is too small shows here, not in a run
    engine = make_engine(args, tokenizer, ends, len(mine), dtype)
    start_run_dir(run, args, saved, ranks)
    keeping = (args.keep_checkpoints, agent, tokenizer, ranks, args.export == "adapter")
    save = lambda state: save_checkpoint(run, state, *keeping)
    batch = (args.n_env, args.token_budget, episodes, device, ranks)
    logger, timer, stop = Logger(run, start, args.num_updates, ranks), Timer(), Stop(ranks)
    evaluate = partial(play_panel, args, engine, render, ranks, logger, timer)
    describe(args, run, actor_critic, engine, ranks, logger)

    engine.push_weights(actor_critic)
    if args.eval_only:
        evaluate(start)
        envs.close()
        return stop.close()
    if saved is None and args.w_epoch > 0:
        rollouts = RolloutStorage(args.w_epoch * args.e_len, *batch)
        logger.say(f"critic warm-up on {rollouts.e_len * args.n_env} turns ...")
        with timer("collect"):
            collect(envs, memories, engine, render, rollouts, args.seed)
        engine.sleep()
        how = (args.w_iter, args.w_fraction, args.w_lr, args.gamma_step)
        with timer("warmup"):
            figures = warm_up_critic(agent, rollouts, estimator, *how, args.use_proper_time_limits)
        logger.warmup(figures | engine.stats() | timer.lap())
        engine.push_weights(actor_critic)  # the same ones: it wakes the engine

    rollouts = RolloutStorage(args.e_len, *batch)
    update, parts["envs"] = start, envs
    while update < args.num_updates and not stop.now():
        state = snapshot(run, update, parts)
        if update % args.save_interval == 0 and (update > start or not saved):
            save(state)
        due = args.eval_interval and update % args.eval_interval == 0
        if due and not (update == 0 and args.skip_first_eval):
            evaluate(update)
        with timer("collect"):
            collect(envs, memories, engine, render, rollouts, args.seed)
        if stop.now():
            break  # after --resume this batch is collected again
        engine.sleep()
        with timer("score"), reference.awake():
            rollouts.score(actor_critic, reference, args.tis_cap is not None)
            rollouts.penalise_kl(kl)
            rollouts.compute_returns(estimator, args.use_proper_time_limits)
        metrics = rollouts.metrics() | engine.stats()
        metrics["rollout/env_faults"] = logger.faults(update, envs.faults)
        with timer("update"):
            if args.lr_schedule == "linear":
                agent.scale_lr(1 - update / args.num_updates)
            metrics |= agent.update(rollouts)
        check_finite(args, run, update, agent, rollouts, tokenizer, logger)
        with timer("push"):
            engine.push_weights(actor_critic)
        metrics |= {"turns": (update + 1) * args.n_env * args.e_len, "kl/coef": kl.coef}
        kl.update(metrics["kl/ref"], args.n_env * args.e_len)
        logger.write(update, metrics | timer.lap())
        logger.turns(update, rollouts, tokenizer, args.log_envs)
        rollouts.after_update()
        update += 1
    else:
        state = snapshot(run, update, parts)

    save(state)
    if args.eval_interval and not stop.asked:
        evaluate(update)
    if stop.asked:
        logger.say(f"{stop.asked.name}: saved; go on with: python main.py --resume {run}")
    else:
        logger.say(f"trained model: {run / 'model'}")
    envs.close()
    ranks.wait()
    return stop.close()


def play_panel(args, engine, render, ranks, logger, timer, update: int) -> None:
    """Evaluate: the same episodes with the same sampling noise in every run, whoever plays them."""
    n = min(args.n_env, args.eval_episodes)
    mine = [PanelSeeds(i, n, args.eval_episodes) for i in ranks.share(n)]
    queue = iter(sorted(seed for seeds in mine for seed in seeds))  # of all my environments
    envs = make_envs(args, [queue] * len(mine))
    panel = Panel(n, Transcript() if args.report else None, ranks)
    with timer("eval"):
        collect(envs, start_memories(args, envs), engine, render, panel, seed=0)
    envs.close()
    logger.faults(update, envs.faults)
    summary = panel.summary() | {"eval/temperature": args.temperature}
    logger.evaluation(update, summary | engine.stats() | timer.lap())
    if args.report:
        title = f"{args.env_name}, {args.model}, {update} updates, T = {args.temperature}"
        logger.zero_shot(panel.transcript, title)


def make_actor_critic(args, lm, dtype):
    cuda = lm.device.type == "cuda"
    if args.packed == "on" and cuda and dtype != torch.bfloat16:
        raise ValueError("--packed on needs --dtype bfloat16 on a GPU: its kernel knows no other")
    return ActorCritic(
        lm,
        args.critic_layers,
        args.temperature or 1,
        args.value_grad_trunk,
        dtype=dtype,
        recompute=args.gradient_checkpointing,
        packed=args.packed == "on" or args.packed == "auto" and cuda and dtype == torch.bfloat16,
        lora_rank=args.lora_rank,
    )


def make_reference(args, actor_critic):
    if args.lora_rank:
        return AdaptersOff(actor_critic)
    home = "cpu" if args.reference == "host" else None
    reference = Reference(actor_critic.lm, actor_critic.temperature, actor_critic.dtype, home)
    if args.reference == "sharded":
        shard(reference)
    return reference


def make_envs(args, seeds):
    make = partial(
        make_env,
        args.env_name,
        format_penalty=args.format_penalty,
        max_episode_steps=args.max_episode_steps,
    )
    return VecEnv(make, seeds, args.env_workers, args.env_timeout, args.max_env_faults)


def start_memories(args, envs, saved=None, mine=()):
    """Memories at the start of episodes, or where those environments of a checkpoint are that are
    `mine`, of all ranks' ones."""
    if saved and len(saved) != args.n_env:
        raise ValueError(f"--n-env {args.n_env}: the resumed run has {len(saved)} environments")
    saved = saved and [saved[i] for i in mine]
    memories = [memory.make(args.memory, args.memory_length) for _ in range(envs.n_env)]
    pasts = envs.resume(saved) if saved else [(first, []) for first in envs.reset()]
    for mem, (first, steps) in zip(memories, pasts, strict=True):
        mem.reset(first)
        for step in steps:
            mem.update(step)
    return memories


def make_agent(args, actor_critic, ranks):
    return Agent(
        actor_critic,
        lr=args.lr,
        critic_lr=args.critic_lr,
        clip=args.clip,
        value_clip=args.value_clip,
        first_token_weight=args.first_token_weight,
        entropy_coef=args.entropy_coef,
        max_grad_norm=args.max_grad_norm,
        ppo_epoch=args.ppo_epoch,
        minibatch=args.minibatch,
        generator=torch.Generator().manual_seed(args.seed),
        ratio_cap=args.tis_cap or float("inf"),
        ranks=ranks,
        make_stepper=make_stepper(args.zero_stage, args.offload_optimizer),
    )


def make_estimator(args):
    if args.advantages not in ESTIMATORS:
        raise ValueError(f"--advantages {args.advantages!r}; choices: {', '.join(ESTIMATORS)}")
    return partial(
        ESTIMATORS[args.advantages],
        gamma_step=args.gamma_step,
        lam_step=args.lam_step,
        gamma_token=args.gamma_token,
        lam_token=args.lam_token,
    )


def check_finite(args, run, update, agent, rollouts, tokenizer, logger):
    """Stop a run whose numbers have broken down, with the turns that did it."""
    if agent.skipped_steps > args.max_skipped_steps:
        report = run / "non_finite.jsonl"
        logger.rows(report, update, rollouts, tokenizer, agent.skipped_rows)
        raise RunError(
            f"{agent.skipped_steps} optimizer steps had a loss or gradient that is not finite; "
            f"the turns of the last are in {report}, and the checkpoints are whole"
        )


def describe(args, run, actor_critic, engine, ranks, logger):
    """What this run is, before it starts."""
    count = sum(p.numel() for p in actor_critic.parameters()) / 1e6
    names = "n_env e_len num_updates minibatch ppo_epoch lr critic_lr critic_layers w_epoch w_iter"
    names += " memory_length prompt_limit response_limit value_clip seed"
    logger.say(f"{args.env_name}, {args.model} ({count:.2f} M parameters with the critic), {run}")
    values = "  ".join(f"{name} {getattr(args, name)}" for name in names.split())
    logger.say(f"  {values}  engine {type(engine).__name__}  ranks {ranks.size}")


def program(argv: list[str] | None = None) -> int:
    """Run a command line; returns its exit code. A user's mistake is one line and 2."""
    sys.stdout.reconfigure(errors="backslashreplace")  # a name may be more than a terminal can show
    try:
        return main(get_args(argv))
    except (ValueError, EnvError, RunError) as error:
        if not ours(error):
            raise
        print(f"main.py: error: {one_line(error)}", file=sys.stderr)
        return 1 if isinstance(error, RunError) else 2
    except KeyboardInterrupt:  # before there is anything to save; then `Stop` sees to it
        print("main.py: interrupted", file=sys.stderr)
        return 130


def ours(error: Exception) -> bool:
    """Raised by a check of this project, not by a library or a bug: then one line says it all."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    path, root = Path(frame.filename).resolve(), Path(__file__).resolve().parent
    inside = path.is_relative_to(root) and "site-packages" not in path.parts
    return inside and frame.line.startswith("raise ")


def one_line(error: Exception) -> str:
    """Its first line and, where it carries an environment's traceback, the place of its end."""
    first, *rest = str(error).splitlines()
    places = [line.strip() for line in rest if line.startswith('  File "')]
    return f"{first} ({places[-1]})" if places else first


if __name__ == "__main__":
    sys.exit(program())
