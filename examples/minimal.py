"""The paper's method on one page: one process, BabyAI, the transformers engine.

    python -m examples.minimal                    # an embedded model learns to go to objects
    python -m examples.minimal --task pickup --seed 2 --num-updates 60

It uses the same rooms as main.py and leaves out what keeps a long run alive: logs, checkpoints,
evaluations, worker processes, ranks, a fast engine. So it is the place to start reading, and the
file to copy if you want a loop of your own. docs/fork.md lists all files that it loads.
"""

import argparse
import sys
from dataclasses import dataclass, fields
from functools import partial
from math import nan
from pathlib import Path
from time import perf_counter

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # `python examples/minimal.py` works like `python -m`

from envs import make_env  # noqa: E402
from envs.pool.serial import SerialPool, training_seeds  # noqa: E402
from memory.render import Renderer  # noqa: E402
from memory.window import WindowMemory  # noqa: E402
from ppo.advantages.gae import dual_discount_gae  # noqa: E402
from ppo.agent import Agent  # noqa: E402
from ppo.engines.lockstep import TransformersEngine  # noqa: E402
from ppo.kl import KLPenalty  # noqa: E402
from ppo.model.actor_critic import ActorCritic, Reference  # noqa: E402
from ppo.warmup import WarmUp  # noqa: E402
from storage.batch import Scoring  # noqa: E402
from storage.collection import Collection, FixedTurns  # noqa: E402
from storage.episodes import means  # noqa: E402


@dataclass
class Settings:
    """The recipe of the embedded model. Where the paper's run differs, its value stands behind."""

    task: str = "goto"
    model: str = str(ROOT / "models" / "tiny")  # Qwen2.5-3B-Instruct
    seed: int = 1
    num_updates: int = 40  # 300
    n_env: int = 32  # N environments ...
    e_len: int = 8  # ... take E turns each in a batch
    memory_length: int = 1  # past turns that a prompt shows
    prompt_limit: int = 1024
    response_limit: int = 32  # 512
    temperature: float = 1.0
    gamma_step: float = 0.99  # from turn to turn
    lam_step: float = 0.95
    gamma_token: float = 1.0  # from token to token
    lam_token: float = 1.0
    kl_coef: float = 0.001
    critic_layers: int = 1  # 2
    lr: float = 2e-4  # 1e-6
    critic_lr: float = 3e-4  # 1e-5
    lr_schedule: str = "constant"
    ppo_epoch: int = 2  # 1
    minibatch: int = 128  # turns
    clip: float = 0.2
    value_clip: float = 0.5
    token_budget: int = 4096  # padded tokens of a forward pass
    first_token_weight: float = 3.0  # of a turn, in the value loss
    entropy_coef: float = 0.0
    max_grad_norm: float = 1.0
    whiten = True  # scale the advantages of a batch to mean 0 and variance 1
    w_epoch: int = 40  # batches that the warm-up collects
    w_iter: int = 6  # rounds of critic training on them; 5
    w_fraction: float = 0.2  # of the turns, in each round; 0.1
    w_lr: float = 5e-4  # 1e-5


def collect(pool, memories, engine, render, collection, seed: int):
    """Fill `collection` with turns and return them as a batch."""

    def ask(i: int) -> None:
        """Submit the next prompt of environment i, or keep it if its turns are complete."""
        prompt = render(memories[i].messages())
        if collection.wants(i):
            engine.submit(i, prompt, seed=(seed, *pool.position(i), 0))
        else:
            collection.finish(i, prompt)  # s_{E+1}: V of it bootstraps the cut

    for i in range(pool.n_env):
        ask(i)
    while not collection.full:
        for i, response in engine.step():
            collection.keep_response(i, response)
            pool.send(i, response.text)
        for i, step in pool.poll():
            collection.insert(i, step)
            memories[i].update(step)
            if step.first is not None:  # the episode ended, and the next one has begun
                memories[i].reset(step.first)
            ask(i)
    return collection.join()


def main(s: Settings) -> float:
    """Train, print a line per update, and return the success of the last 100 episodes."""
    torch.manual_seed(s.seed)
    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(s.model)
    lm = AutoModelForCausalLM.from_pretrained(s.model, dtype=torch.float32).eval()
    actor_critic = ActorCritic(lm, s.critic_layers)
    reference = Reference(lm)  # pi_0, a frozen copy: taken before the first step
    agent = Agent(s, actor_critic, torch.Generator().manual_seed(s.seed))
    kl = KLPenalty(s.kl_coef, "k1", target=None)
    warm_up_critic = WarmUp(s.w_iter, s.w_fraction, s.w_lr, s.gamma_step)

    pool = SerialPool(partial(make_env, f"babyai-{s.task}"), training_seeds(s.seed, range(s.n_env)))
    memories = [WindowMemory(s.memory_length) for _ in range(s.n_env)]
    for memory, observation in zip(memories, pool.reset(), strict=True):
        memory.reset(observation)
    render = Renderer(tokenizer, s.prompt_limit)
    engine = TransformersEngine(
        tokenizer, {tokenizer.eos_token_id}, s.response_limit, s.temperature
    )
    engine.push_weights(actor_critic)
    collection = Collection(s.n_env, FixedTurns(s.e_len), Scoring(s.token_budget))

    def estimate(rewards, values, response_mask, next_values, episode_ends, **_):
        return dual_discount_gae(
            rewards, values, response_mask, next_values, episode_ends,
            s.gamma_step, s.lam_step, s.gamma_token, s.lam_token,
        )  # fmt: skip

    # Without a warm-up the first updates would follow a critic that knows nothing.
    warm_up = collect(pool, memories, engine, render, collection.longer(s.w_epoch), s.seed)
    figures = warm_up_critic(agent, warm_up, estimate)
    explained = figures.get("warmup/explained_variance_held_out", nan)
    print(f"critic warm-up on {len(warm_up.rows)} turns: explains {explained:.2f} of the variance")

    for update in range(1, s.num_updates + 1):
        began = perf_counter()
        batch = collect(pool, memories, engine, render, collection, s.seed)
        plan = agent.plan(batch)  # the minibatches, along which the turns are scored, too
        batch.score(actor_critic, reference, plan[0])  # log pi_old, log pi_0, V
        batch.penalise_kl(kl)  # r <- r - beta log(pi_old / pi_0)
        batch.compute_returns(estimate)  # dual-discount GAE (eq. 2)
        losses = agent.update(batch, plan)  # clipped PPO; each turn is a sample
        engine.push_weights(actor_critic)
        success = means(collection.episodes.finished[-100:])["success"]
        collection.after_update(batch)
        print(
            f"update {update:3d}/{s.num_updates}  success {success:.2f}  "
            f"kl {batch.mean_kl():.4f}  value loss {losses['ppo/value_loss']:.4f}  "
            f"{perf_counter() - began:.1f} s",
            flush=True,
        )
    return success


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for field in fields(Settings):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=field.type, default=field.default)
    main(Settings(**vars(parser.parse_args())))
