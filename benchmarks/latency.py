"""How long the engine is idle while agents wait for their tools, end to end through the endpoint.

    python -m benchmarks.latency --n-env 64 --threads 64                 needs vLLM
    python -m benchmarks.latency --n-env 64 --threads 0 --e-len 1        the agents take turns

After each answer an agent's tool takes 1 to 5 seconds, and then the agent asks again. `collect` of
main.py makes batches of n_env x e_len turns. The model has random weights, and each response has
--tokens tokens. It is the bottleneck where the responses to all agents take longer than a tool.
"""

import argparse
import http.client
import json
import random
import time
from tempfile import TemporaryDirectory

from arguments import get_args
from benchmarks.common import SHAPES, Stopwatch, save_model
from envs.pool.seeds import training_seeds
from envs.pool.vec_env import make_envs
from main import collect
from memory import make_memories
from memory.chat import make_render
from ppo.engines.contract import make_engine
from ppo.model.actor_critic import ActorCritic
from ppo.model.decoder import choose_dtype
from ppo.model.pretrained import load_lm
from ppo.run.stop import Stop
from storage.ranks import ALONE
from storage.rollout import make_storage

FASTEST, SLOWEST = 1.0, 5.0  # seconds of a tool
TURNS = 20  # of an episode


def agent(seed, base_url, api_key, reward):
    """An agent program: it asks, lets a tool work, and asks again."""
    host, tool = base_url.removeprefix("http://").partition("/")[0], random.Random(seed)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(host)
    for turn in range(TURNS):
        asked = {"model": "policy", "messages": [{"role": "user", "content": f"turn {turn}"}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
        json.load(connection.getresponse())
        time.sleep(tool.uniform(FASTEST, SLOWEST))
    connection.close()


class Watched:
    """An engine that notes when it worked last."""

    def __init__(self, engine):
        self.engine, self.last = engine, 0.0

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def step(self):
        busy, done = not self.engine.idle, self.engine.step()
        if busy:
            self.last = time.perf_counter()
        return done


def measure(args, batches: int) -> None:
    """Print what the engine did in each of some batches."""
    lm, tokenizer, _ = load_lm(args.model, ALONE.device)
    actor_critic = ActorCritic(lm, 0, 1.0, dtype=choose_dtype("auto", ALONE.device))
    engine = Watched(make_engine(args, tokenizer, set(), args.n_env, actor_critic.dtype))
    engine.push_weights(actor_critic)
    envs = make_envs(args, training_seeds(args.seed, range(args.n_env)))
    memories = make_memories(args, envs.resume(None))
    render, rollouts = make_render(args, tokenizer, memories[0]), make_storage(args, ALONE)
    for _ in range(batches):
        with Stopwatch() as took:
            collect(envs, memories, engine, render, rollouts, args.seed, Stop())
        end, figures = time.perf_counter(), engine.stats()
        assert not envs.faults, envs.faults[0]
        worked, turns = figures["time/engine"], args.n_env * args.e_len
        print(
            f"{turns} turns in {took.seconds:.1f} s: {turns / took.seconds:.2f} a second, "
            f"engine {1000 * worked / turns:.0f} ms a turn, "
            f"occupancy {figures['time/engine_occupancy']:.2f}, "
            f"idle {1 - worked / took.seconds:.1%}, of which "
            f"{(end - engine.last) / took.seconds:.1%} after the last response",
            flush=True,
        )
        rollouts.after_update()
    envs.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--n-env", type=int, default=64, help="agents")
    flag("--threads", type=int, default=64, help="--env-threads; 0: the agents take turns")
    flag("--e-len", type=int, default=8, help="turns of each agent in a batch")
    flag("--tokens", type=int, default=128, help="of each response")
    flag("--batches", type=int, default=2, help="that are collected")
    flag("--shape", choices=SHAPES, default="small", help="of the model")
    flag("--engine", default="vllm", help="as in main.py")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        save_model(given.shape, folder)
        words = f"--env-name agent:benchmarks.latency:agent --model {folder} --minibatch 1 "
        words += f"--n-env {given.n_env} --env-threads {given.threads} --e-len {given.e_len} "
        words += f"--response-limit {given.tokens} --prompt-limit 512 --engine {given.engine}"
        print(" ".join(f"{name} {value}" for name, value in vars(given).items()), flush=True)
        measure(get_args(words.split()), given.batches)


if __name__ == "__main__":
    main()
