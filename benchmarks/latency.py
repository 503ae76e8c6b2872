"""Measures how long the engine is idle while agents wait for their tools.

    python -m benchmarks.latency --n-env 64 --threads 64                 needs vLLM
    python -m benchmarks.latency --n-env 64 --threads 0 --e-len 1        the agents take turns
    python -m benchmarks.latency --n-env 64 --threads 64 --plain         without the endpoint

After each response an agent calls a tool for 1 to 5 seconds, and then sends its next request to the
endpoint. With --plain, an environment takes this time for each turn. `collect` of main.py makes
batches of n_env x e_len turns. The model has random weights, and each response has --tokens tokens.

With --plain the turns are then collected again without waiting, and the program says how many of
them are the same.
"""

import http.client
import json
import random
import time
from functools import partial
from tempfile import TemporaryDirectory

from arguments import get_args
from benchmarks.common import SHAPES, Stopwatch, save_model
from benchmarks.workload import RandomText
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

FASTEST, SLOWEST = 1.0, 5.0  # seconds of a tool call
TURNS = 20  # per episode


def agent(seed, base_url, api_key, reward):
    """An agent program that alternates between requests and tool calls."""
    host, delay = base_url.removeprefix("http://").partition("/")[0], random.Random(seed)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(host)
    for turn in range(TURNS):
        body = {"model": "policy", "messages": [{"role": "user", "content": f"turn {turn}"}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        json.load(connection.getresponse())
        time.sleep(delay.uniform(FASTEST, SLOWEST))
    connection.close()


class ToolEnv(RandomText):
    """A plain environment. waits: whether its turns take as long as a tool call"""

    def __init__(self, waits: bool):
        self.waits = waits

    def reset(self, *, seed=None, options=None):
        self.delay = random.Random(seed)
        return super().reset(seed=seed)

    def step(self, response):
        time.sleep(self.delay.uniform(FASTEST, SLOWEST) * self.waits)
        return super().step(response)


class TimedEngine(Wrapper):
    """An engine that records when it last worked."""

    def __init__(self, engine):
        super().__init__(engine)
        self.last_work = 0.0

    def step(self):
        busy, done = not self.inner.idle, self.inner.step()
        if busy:
            self.last_work = time.perf_counter()
        return done


def measure(args, batches: int, plain: bool) -> None:
    """Print what the engine did in each of `batches` batches."""
    actor_critic, tokenizer, _ = make_model(args.generation, args.update, ALONE.device, args.seed)
    reference = make_reference(args.update, actor_critic)
    threads, dtype = execution(args.env_workers).threads, actor_critic.dtype
    engine = make_engine(args.generation, tokenizer, set(), args.n_env, dtype, args.seed,
                         slow_envs=threads > 0)  # fmt: skip
    engine = TimedEngine(engine)
    engine.push_weights(actor_critic)
    if not plain:
        envs = make_envs(args.environment, args.generation, seeds_of(args))
        play(args, engine, tokenizer, envs, batches)
        return
    envs = ResilientPool(partial(ToolEnv, True), seeds_of(args), threads=threads)
    slow = play(args, engine, tokenizer, envs, batches)
    agent = make_agent(args.update, actor_critic, ALONE, args.seed)
    batch, plan = slow[-1], agent.plan(slow[-1])
    batch.score(actor_critic, reference, plan[0])
    batch.compute_returns(make_estimator(args.update))
    ratio = agent.update(batch, plan)["ppo/ratio_first_minibatch"]
    gap = (engine_logps(batch) - batch.logps).abs().max().item()
    print(f"ratio in the first minibatch {ratio}, largest gap to the engine's log-probs {gap:.1e}")
    engine.push_weights(actor_critic)
    envs = ResilientPool(partial(ToolEnv, False), seeds_of(args))
    fast = play(args, engine, tokenizer, envs, batches)
    same = [a == b for a, b in zip(token_ids(slow), token_ids(fast), strict=True)]
    print(f"{sum(same)} of {len(same)} turns are the same without waiting")


def token_ids(batches) -> list:
    """Return the ids of the prompt and of the response of each turn."""
    return [sample[:2] for batch in batches for sample in batch.samples]


def seeds_of(args) -> list:
    return training_seeds(args.seed, range(args.n_env))


def play(args, engine: TimedEngine, tokenizer, envs: ResilientPool, count: int) -> list:
    """Collect `count` batches, print a line for each, and return them."""
    memories, batches = make_memories(args.environment, envs.resume(None)), []
    render = Renderer(tokenizer, args.prompt_limit)
    for _ in range(count):
        rollouts = make_storage(args.batch, args.update, ALONE)
        with Stopwatch() as took:
            batch = collect(envs, memories, engine, render, rollouts, args.seed)
        end, figures = time.perf_counter(), engine.stats()
        assert not envs.faults, envs.faults[0]
        work, turns = figures["time/engine"], args.n_env * args.e_len
        print(
            f"{turns} turns in {took.seconds:.1f} s: {turns / took.seconds:.2f} per second, "
            f"engine {1000 * work / turns:.0f} ms per turn, "
            f"occupancy {figures['time/engine_occupancy']:.2f}, "
            f"idle {1 - work / took.seconds:.1%}, of which "
            f"{(end - engine.last_work) / took.seconds:.1%} after the last response",
            flush=True,
        )
        batches.append(batch)
    envs.close()
    return batches


def main() -> None:
    parser = Parser("benchmarks.latency", description=__doc__.splitlines()[0])
    flag = parser.add_argument
    flag("--n-env", type=int, default=64, help="number of agents")
    flag("--threads", type=int, default=64, help="environment threads; 0: the agents take turns")
    flag("--e-len", type=int, default=8, help="turns of each agent in a batch")
    flag("--tokens", type=int, default=128, help="length of each response")
    flag("--batches", type=int, default=2, help="number of batches")
    flag("--shape", choices=SHAPES, default="small", help="shape of the random model")
    flag("--engine", default="vllm", help="as in main.py")
    flag("--plain", action="store_true", help="use environments instead of agents")
    options = parser.parse_args()
    print(" ".join(f"{name} {value}" for name, value in vars(options).items()), flush=True)
    with TemporaryDirectory() as folder:
        save_model(options.shape, folder)
        args = get_args([
            "--env-name", "toy" if options.plain else "agent:benchmarks.latency:agent",
            "--model", folder, "--engine", options.engine, "--n-env", str(options.n_env),
            "--env-workers", f"threads:{options.threads}", "--e-len", str(options.e_len),
            "--minibatch", str(options.n_env), "--prompt-limit", "512",
            "--response-limit", str(options.tokens), "--critic-layers", "0", "--w-epoch", "0",
            "--lr", "0", "--critic-lr", "0", "--ppo-epoch", "1",
        ])  # fmt: skip
        measure(args, options.batches, options.plain)


if __name__ == "__main__":
    main()
