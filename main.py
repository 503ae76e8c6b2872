"""PPO for LLM agents that act over hundreds of turns: the algorithm at a glance.

    python main.py --env-name babyai-goto --n-env 32 --e-len 8

A turn (prompt, sampled response, environment step) is one training sample, and a batch is exactly
E turns of each of N environments. To see what a call does, open the file its object comes from.
"""

from contextlib import ExitStack, closing
from itertools import count

import run.process as process  # first: it keeps Ctrl-C quiet while the others are imported
from arguments import get_args
from common.cli import LOADING, life_sign

# --help and a mistake are answered before the slow imports below
ARGS = get_args() if __name__ == "__main__" else None
life_sign(LOADING)

from envs.agents.untrained import with_untrained_calls
from envs.pool.groups import episode_seeds
from envs.pool.resilient import make_envs
from envs.pool.serial import evaluation_seeds
from memory import make_memories
from memory.checks import make_render
from ppo.advantages import make_estimator
from ppo.agent import make_agent
from ppo.distributed import make_ranks
from ppo.engines.contract import make_engine
from ppo.evaluation import EvaluationEpisodes
from ppo.kl import make_kl
from ppo.model.make import make_models
from ppo.warmup import make_warm_up
from reports.evaluations import write_eval_table
from reports.zero_shot import Transcript, write_check
from run.checkpoint import Checkpoints
from run.directory import claimed_run_dir, start_run_dir
from run.exit import exit_code
from run.fit.advice import check_fit
from run.logger import Logger
from run.stop import Stop
from run.timer import Timer
from storage.make import make_storage


def collect(envs, memories, engine, render, rollouts, seed: int, stop):
    """Fill `rollouts` and return the batch. Nobody waits for the slowest response or environment.

    seed: the sampling noise of a turn is drawn from (seed, episode, turn, group member)
    stop: asked by a signal, ends the collection early; there is no batch then
    """

    def ask(i: int) -> None:
        """Let the engine answer the next prompt of environment i, unless its turns are complete."""
        prompt = render(memories[i].messages(), rollouts.previous_ids(i))
        if rollouts.wants(i):
            engine.submit(i, prompt, seed=(seed, *envs.place(i), rollouts.group_member(i)))
        else:
            rollouts.finish(i, prompt)  # nothing is sampled for it: its value is the bootstrap

    for i in range(envs.n_env):
        ask(i)
    while not (rollouts.full or stop.signalled):
        for i, response in engine.step():  # the responses that are complete
            rollouts.keep_response(i, response)
            envs.send(i, response.text, response.truncated)
        for i, step in envs.poll(wait=engine.idle):  # the environments that have answered
            rollouts.insert(i, step)
            memories[i].update(step)
            if rollouts.needs_bootstrap(step):  # V of what it would have seen stands for the rest
                rollouts.bootstrap(i, render(memories[i].messages(), rollouts.previous_ids(i)))
            if step.first is not None:  # the episode ended, and the next one has begun
                memories[i].reset(step.first)
            for k in rollouts.ready_to_ask(i):  # i alone, or a group that begins together
                ask(k)
    # All ranks go on, or none; then each of them holds the whole batch.
    return None if stop.now() else rollouts.join()


def main(args) -> int:
    """Train, or only evaluate. Returns the exit code."""
    with ExitStack() as cleanup:  # however the run ends, it gives back what it took
        ranks = make_ranks(args)
        run = cleanup.enter_context(claimed_run_dir(args, ranks))
        checkpoints = Checkpoints(args, run, ranks)
        if checkpoints.finished():
            return 0
        kl, estimator, warm_up_critic = (
            make_kl(args.batch),
            make_estimator(args.batch),
            make_warm_up(args),
        )
        actor_critic, reference, tokenizer, ends = make_models(args, ranks.device)
        agent, rollouts = make_agent(args, actor_critic, ranks, kl), make_storage(args, ranks)
        start = checkpoints.restore(tokenizer, agent=agent, kl=kl, episodes=rollouts.episodes)
        mine = ranks.share(args.n_env)  # the environments that this rank plays
        envs = make_envs(args, episode_seeds(args.seed, mine, args.group_size), first=mine.start)
        cleanup.callback(envs.close)
        memories = make_memories(args.environment, envs.resume(checkpoints.places(mine)))
        render = make_render(args, tokenizer, memories[0])
        engine = make_engine(args, tokenizer, ends, envs.n_env, actor_critic.dtype)
        envs, engine = with_untrained_calls(args, envs, engine, render, args.seed)
        start_run_dir(run, args, checkpoints.state, ranks)  # the first file is written here
        logger = Logger(args, run, start, tokenizer, ranks)
        stop, timer = cleanup.enter_context(Stop(ranks)), Timer(logger.console)
        logger.describe(actor_critic, engine)
        engine.push_weights(actor_critic)
        if args.w_epoch and not checkpoints.state and not args.eval_only:
            longer = rollouts.longer(args.w_epoch)
            logger.say(f"critic warm-up on {longer.schedule.e_len * args.n_env} turns ...")
            with timer("collect", longer.progress):
                batch = collect(envs, memories, engine, render, longer, args.seed, stop)
            engine.sleep()
            if not stop.asked:
                with timer("warmup", warm_up_critic.progress):
                    figures = warm_up_critic(agent, batch, estimator, stop)
            if stop.asked:
                return logger.goodbye(stop, saved=False)
            logger.warmup(figures | engine.stats() | timer.lap(), envs, batch)
            engine.push_weights(actor_critic)  # the actor is unchanged: this wakes the engine
            del longer, batch  # many times the turns of an update, in memory

        for update in count(start):
            last = args.eval_only or checkpoints.complete(update) or stop.now()
            checkpoints.mark(update, envs)
            if checkpoints.due(last):
                checkpoints.save()
            with stop.saving(checkpoints):
                if evaluation_due(args, update, last) and not stop.asked:
                    evaluate(args, engine, render, ranks, logger, timer, update, stop)
                if last or stop.asked:
                    break
                with timer("collect", rollouts.progress):
                    batch = collect(envs, memories, engine, render, rollouts, args.seed, stop)
            if stop.asked:  # the marked state is saved: a resumed run collects this batch again
                break
            engine.sleep()
            with timer("score"), reference.awake():
                plan = agent.plan(batch)  # the minibatches of each epoch
                batch.score(actor_critic, reference, plan[0])
                batch.penalise_kl(kl)
                batch.compute_returns(estimator)
            with timer("update"):
                agent.schedule_lr(update / args.num_updates)
                figures = agent.update(batch, plan)
            logger.check_finite(update + 1, batch, agent)
            figures |= engine.stats() | {"kl/coef": kl.coef}
            with timer("push"):
                engine.push_weights(actor_critic)
            logger.write(update + 1, batch, envs, figures | timer.lap())
            kl.update(batch.mean_kl(), len(batch.rows))
            rollouts.after_update(batch)
            del batch  # else its turns would be held during the next collection

        return logger.goodbye(stop)


def evaluation_due(args, update: int, last: bool) -> bool:
    """Whether the policy is evaluated after `update` updates (last: no update follows)."""
    if args.eval_only or not args.eval_interval:
        return args.eval_only
    return last or update % args.eval_interval == 0 and not (update == 0 and args.skip_first_eval)


def evaluate(args, engine, render, ranks, logger, timer, update: int, stop) -> None:
    """Play the evaluation episodes: the same, with the same sampling noise, in every run."""
    transcript = Transcript() if args.eval_only else None
    n_env = min(args.n_env, args.eval_episodes)
    played = EvaluationEpisodes(n_env, ranks, transcript, args.eval_episodes)
    seeds = evaluation_seeds(args.eval_episodes, n_env, played.share)
    envs = make_envs(args, seeds, first=played.share.start, proven=not args.eval_only)
    logger.say(f"evaluation on {args.eval_episodes} episodes ...")
    with timer("eval", played.progress), closing(envs):
        memories = make_memories(args.environment, envs.resume(None))
        turns, sampler = with_untrained_calls(args, envs, engine, render, 0, evaluation=True)
        collect(turns, memories, sampler, render, played, 0, stop)
    if stop.asked:
        return
    figures = {"eval/temperature": args.temperature} | engine.stats() | timer.lap()
    logger.evaluation(update, played.summary() | figures, envs)
    if logger.leads:
        write_eval_table(logger.run_dir)
    if logger.leads and transcript:
        title = f"{args.env_name}, {args.model}, {update} updates, T = {args.temperature}"
        logger.say(write_check(logger.run_dir, transcript, title))
        logger.played(update, played.played)
    stop.now()  # all ranks learn it if the first one could not write


def program(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code. A user's mistake is told in one line."""
    process.set_up()
    try:
        args = ARGS or get_args(argv)
        process.choose_threads(args.model)
        return 0 if check_fit(args) else main(args)
    except (Exception, KeyboardInterrupt) as error:
        return exit_code(error)


if __name__ == "__main__":
    process.end_with(program)
