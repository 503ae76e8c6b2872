"""How long the engine is idle while agents wait for their tools, end to end through the endpoint.

    python -m benchmarks.latency --n-env 64 --threads 64                 needs vLLM
    python -m benchmarks.latency --n-env 64 --threads 0 --e-len 1        the agents take turns
    python -m benchmarks.latency --n-env 64 --threads 64 --plain         no endpoint

After each answer an agent's tool takes 1 to 5 seconds, and then the agent asks again. With --plain,
each turn of an environment takes so long. `collect` of main.py makes batches of n_env x e_len
turns. The model has random weights, and each response has --tokens tokens. It is the bottleneck
where the responses to all agents take longer than a tool.

Plain environments are then played again without waiting, and the turns are compared.
"""

import http.client
import json
import random
import time
from functools import partial
from tempfile import TemporaryDirectory

from arguments import get_args
from benchmarks.common import SHAPES, Stopwatch, save_model
from benchmarks.rollout import Story
from common.cli import Parser
from common.execution import execution
from common.ranks import ALONE
from common.wrapper import Wrapper
from envs.pool.make import make_envs
from envs.pool.resilient import ResilientPool
from envs.pool.serial import training_seeds
from main import collect
from memory import make_memories
from memory.render import Renderer
from ppo.advantages import make_estimator
from ppo.engines.choose import make_engine
from ppo.make import make_agent
from ppo.model.make import make_model, make_reference
from run.figures import engine_logps
from storage.make import make_storage

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


class Waiting(Story):
    """A plain environment. waits: whether its turns take as long as a tool"""

    def __init__(self, waits: bool):
        self.waits = waits

    def reset(self, *, seed=None, options=None):
        self.tool = random.Random(seed)
        return super().reset(seed=seed)

    def step(self, response):
        time.sleep(self.tool.uniform(FASTEST, SLOWEST) * self.waits)
        return super().step(response)


class Watched(Wrapper):
    """An engine that notes when it worked last."""

    def __init__(self, engine):
        super().__init__(engine)
        self.last = 0.0

    def step(self):
        busy, done = not self.inner.idle, self.inner.step()
        if busy:
            self.last = time.perf_counter()
        return done


def measure(args, batches: int, plain: bool) -> None:
    """Print what the engine did in each of some batches."""
    actor_critic, tokenizer, _ = make_model(args.generation, args.update, ALONE.device, args.seed)
    reference = make_reference(args.update, actor_critic)
    threads, dtype = execution(args.env_workers).threads, actor_critic.dtype
    engine = make_engine(
        args.generation, tokenizer, set(), args.n_env, dtype, args.seed, slow_envs=threads > 0
    )
    engine = Watched(engine)
    engine.push_weights(actor_critic)
    if not plain:
        play(
            args,
            engine,
            tokenizer,
            make_envs(args.environment, args.generation, seeds_of(args)),
            batches,
        )
        return
    waiting = ResilientPool(partial(Waiting, True), seeds_of(args), threads=threads)
    slow = play(args, engine, tokenizer, waiting, batches)
    agent = make_agent(args.update, actor_critic, ALONE, args.seed)
    batch, plan = slow[-1], agent.plan(slow[-1])
    batch.score(actor_critic, reference, plan[0])
    batch.compute_returns(make_estimator(args))
    ratio = agent.update(batch, plan)["ppo/ratio_first_minibatch"]
    gap = (engine_logps(batch) - batch.logps).abs().max().item()
    print(f"ratio in the first minibatch {ratio}, largest gap to the engine's log-probs {gap:.1e}")
    engine.push_weights(actor_critic)
    fast = play(
        args, engine, tokenizer, ResilientPool(partial(Waiting, False), seeds_of(args)), batches
    )
    same = [a == b for a, b in zip(turns_of(slow), turns_of(fast), strict=True)]
    print(f"{sum(same)} of {len(same)} turns are the same without waiting")


def turns_of(batches) -> list:
    """Return the ids of the prompt and of the response of each turn."""
    return [sample[:2] for batch in batches for sample in batch.samples]


def seeds_of(args) -> list:
    return training_seeds(args.seed, range(args.n_env))


def play(args, engine: Watched, tokenizer, envs: ResilientPool, batches: int) -> list:
    """Collect some batches, print a line for each, and return them."""
    memories, filled = make_memories(args, envs.resume(None)), []
    render = Renderer(tokenizer, args.prompt_limit)
    for _ in range(batches):
        rollouts = make_storage(args.batch, args.update, ALONE)
        with Stopwatch() as took:
            batch = collect(envs, memories, engine, render, rollouts, args.seed)
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
        filled.append(batch)
    envs.close()
    return filled


def main() -> None:
    parser = Parser("benchmarks.latency", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--n-env", type=int, default=64, help="agents")
    flag("--threads", type=int, default=64, help="of --env-workers; 0: the agents take turns")
    flag("--e-len", type=int, default=8, help="turns of each agent in a batch")
    flag("--tokens", type=int, default=128, help="of each response")
    flag("--batches", type=int, default=2, help="that are collected")
    flag("--shape", choices=SHAPES, default="small", help="of the model")
    flag("--engine", default="vllm", help="as in main.py")
    flag("--plain", action="store_true", help="environments in place of agents")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        save_model(given.shape, folder)
        name = "toy" if given.plain else "agent:benchmarks.latency:agent"
        words = f"--env-name {name} --model {folder} --minibatch {given.n_env} --critic-layers 0 "
        words += "--w-epoch 0 --lr 0 --critic-lr 0 --ppo-epoch 1 "
        words += (
            f"--n-env {given.n_env} --env-workers threads:{given.threads} --e-len {given.e_len} "
        )
        words += f"--response-limit {given.tokens} --prompt-limit 512 --engine {given.engine}"
        print(" ".join(f"{name} {value}" for name, value in vars(given).items()), flush=True)
        measure(get_args(words.split()), given.batches, given.plain)


if __name__ == "__main__":
    main()
