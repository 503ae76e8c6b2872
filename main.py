"""PPO for LLM agents that act over hundreds of turns: the algorithm at a glance.

    python main.py --env-name babyai-goto --n-env 32 --e-len 8

A turn (prompt, sampled response, environment step) is one training sample, and a batch is exactly
E turns of each of N environments. To see what a call does, open the file its object comes from.
"""

from itertools import count

import run.process as process  # first: it keeps Ctrl-C quiet while the others are imported
from arguments import get_args
from common.cli import LOADING, print_status

# --help and a mistake are answered before the slow imports below
ARGS = get_args() if __name__ == "__main__" else None
print_status(LOADING)

from branch import with_values
from envs.agents.untrained import with_untrained_calls
from envs.pool.evaluation import all_evaluation_seeds, evaluation_seeds
from envs.pool.make import make_envs
from envs.pool.weak import episode_seeds
from memory import make_memories
from memory.checks import make_render
from ppo.advantages import make_estimator
from ppo.distributed import make_ranks
from ppo.engines.choose import make_engine
from ppo.evaluation import EvaluationEpisodes
from ppo.make import make_agent, make_kl, make_warm_up
from ppo.model.make import make_model, make_reference
from ppo.thoughts import thought_information
from reports.evaluations import write_eval_table
from reports.zero_shot import Transcript, write_check
from run.command_line import run_command_line
from run.context import Run
from run.figures import update_figures
from storage.batch import Scoring
from storage.make import make_storage


def collect(envs, memories, engine, render, rollouts, seed: int):
    """Fill `rollouts` and return the batch. Nobody waits for the slowest turn."""

    def ask(i: int) -> None:
        """Let the engine answer the next prompt of environment i, unless its turns are complete."""
        prompt = render(memories[i].messages(), rollouts.previous_ids(i))
        if rollouts.wants(i):  # equal seeds, episodes and turns get equal sampling noise
            engine.submit(i, prompt, seed=(seed, *envs.position(i), rollouts.group_member(i)))
        else:
            rollouts.finish(i, prompt)  # nothing is sampled for it: its value is the bootstrap

    for i in range(envs.n_env):
        ask(i)
    while not rollouts.full:
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
    return rollouts.join()  # every rank holds the whole batch


def main(args) -> int:
    """Train, or only evaluate. Returns the exit code."""
    with Run(args, make_ranks(args.zero_stage)) as run:  # its directory, checkpoints and logs
        if run.finished:
            return 0
        kl, estimator, device = make_kl(args.update), make_estimator(args.update), run.ranks.device
        actor_critic, tokenizer, ends = make_model(args.generation, args.update, device, args.seed)
        reference = None if args.eval_only else make_reference(args.update, actor_critic)
        agent = make_agent(args.update, actor_critic, run.ranks, args.seed, kl)
        rollouts = make_storage(args.batch, args.update, run.ranks)
        start = run.restore(agent=agent, kl=kl, episodes=rollouts.episodes)
        seeds = episode_seeds(args.env_name, args.seed, run.share, args.group_size)
        envs = run.pool(make_envs(args.environment, args.generation, seeds, run.share.start))
        memories = make_memories(args.environment, run.keep(envs).resume(run.env_states))
        render = make_render(args.environment, args.prompt_limit, tokenizer, memories, args.resume)
        engine = make_engine(args.generation, tokenizer, ends, envs.n_env, actor_critic.dtype,
                             args.seed, args.zero_stage == 3, envs.threads > 0,
                             args.update.lora_rank)  # fmt: skip
        envs, engine = with_untrained_calls(args.endpoint_sampling, envs, engine, render, args.seed)
        rollouts = with_values(args, run, rollouts, envs, engine, render, collect)
        run.begin(actor_critic, engine, tokenizer)
        engine.push_weights(actor_critic)
        if run.warms_up:
            warm_up(args, run, agent, estimator, rollouts, envs, memories, engine, render)

        for update in count(start):
            with run.checkpoint(update, envs):  # this state is saved if what follows breaks off
                if run.evaluates(update):
                    evaluate(args, run, actor_critic, engine, render, update)
                if run.complete(update):
                    break
                with run.phase("collect", rollouts.progress):
                    batch = collect(envs, memories, engine, render, rollouts, args.seed)
            engine.sleep()
            with run.phase("score"), reference.awake():
                plan = agent.plan(batch)  # the minibatches of each epoch
                batch.score(actor_critic, reference, plan[0])
                batch.penalise_kl(kl)
                batch.compute_returns(estimator)
            with run.phase("update"):
                agent.schedule_lr(update / args.num_updates)
                figures = agent.update(batch, plan) | update_figures(batch, plan)
                figures |= engine.stats() | {"kl/coef": kl.coef}
            with run.phase("push"):
                engine.push_weights(actor_critic)
            run.log(update + 1, batch, envs, agent, figures)
            kl.update(batch.mean_kl(), len(batch.rows))
            rollouts.after_update(batch)
            del batch  # else its turns would be held during the next collection
    return run.exit_code


def warm_up(args, run, agent, estimator, rollouts, envs, memories, engine, render) -> None:
    """Train the critic on turns of the actor as it is, before the first update."""
    longer = rollouts.longer(args.w_epoch)
    warm_up_critic = make_warm_up(args.warm_up, args.gamma_step, args.group_size)
    about = f"critic warm-up on {longer.schedule.e_len * args.n_env} turns"
    with run.phase("collect", longer.progress, about):
        batch = collect(envs, memories, engine, render, longer, args.seed)
    engine.sleep()
    with run.phase("warmup", warm_up_critic.progress):
        figures = warm_up_critic(agent, batch, estimator)
    run.log_warm_up(batch, envs, figures | engine.stats())
    engine.push_weights(agent.actor_critic)  # the actor is unchanged: this wakes the engine


def evaluate(args, run, actor_critic, engine, render, update: int) -> None:
    """Play the evaluation episodes: the same, with the same sampling noise, in every run."""
    transcript = Transcript() if args.eval_only else None
    n_env = min(args.n_env, args.eval_episodes)
    all_seeds = all_evaluation_seeds(args.eval_episodes)
    played = EvaluationEpisodes(n_env, run.ranks, transcript, all_seeds)
    seeds = evaluation_seeds(args.eval_episodes, n_env, played.share)
    first, proven = played.share.start, not args.eval_only
    envs = run.pool(make_envs(args.environment, args.generation, seeds, first, proven))
    about = f"evaluation on {args.eval_episodes} episodes"
    with run.phase("eval", played.progress, about), envs:
        memories = make_memories(args.environment, envs.resume(None))
        turns, sampler = with_untrained_calls(
            args.endpoint_sampling, envs, engine, render, 0, evaluation=True
        )
        collect(turns, memories, sampler, render, played, 0)
        engine.sleep()
        scoring = Scoring(args.token_budget, run.ranks)
        with run.ranks.together():
            figures = thought_information(played.thoughts, actor_critic, scoring)
        engine.push_weights(actor_critic)  # unchanged: this wakes the engine
    figures |= played.summary() | engine.stats()
    run.log_evaluation(update, envs, figures, played.by_episode())
    if run.leads:
        write_eval_table(run.directory)
    if run.leads and transcript:
        title = f"{args.env_name}, {args.model}, {update} updates, T = {args.temperature}"
        run.say(write_check(run.directory, transcript, title))
        run.logger.evaluation_turns(update, played.played)
    run.ranks.wait()  # all ranks learn it here if the first one could not write


def program(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code. A user's mistake is told in one line."""
    return run_command_line(argv, get_args, main, ARGS)


if __name__ == "__main__":
    process.end_with(program)
