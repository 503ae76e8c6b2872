"""Trains the embedded model on fixed turns, then measures what loading another model takes.

torchrun --nproc-per-node 2 tests/ppo/model/sharded_loading.py OUT.json STAGE [MODEL]
"""

import json
import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3])]

from conftest import fill_batch  # noqa: E402

from arguments import get_args  # noqa: E402
from ppo.advantages import make_estimator  # noqa: E402
from ppo.distributed import make_ranks  # noqa: E402
from ppo.make import make_agent, make_kl  # noqa: E402
from ppo.model.make import make_model, make_reference  # noqa: E402
from recipes import TINY  # noqa: E402

FLAGS = """--env-name toy --n-env 4 --e-len 5 --minibatch 5 --ppo-epoch 1 --lr 1e-5
--critic-lr 1e-5 --critic-layers 1"""


class Peak(threading.Thread):
    """The peak of the bytes that belong to this process alone, so without files that it reads."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before, self.highest, self.ended = self.now(), 0, threading.Event()
        self.start()

    def now(self) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    def run(self) -> None:
        while not self.ended.wait(0.002):
            self.highest = max(self.highest, self.now() - self.before)

    def end(self) -> int:
        self.ended.set()
        self.join()
        return self.highest


def load(model: str, stage: str, ranks):
    args = get_args([*FLAGS.split(), "--model", model, "--zero-stage", stage])
    actor_critic, *_ = make_model(args.generation, args.update, ranks.device, args.seed)
    return args, actor_critic


def train(args, actor_critic, ranks) -> list[dict]:
    """Return the figures of two updates."""
    reference, kl = make_reference(args.update, actor_critic), make_kl(args.update)
    agent = make_agent(args.update, actor_critic, ranks, args.seed, kl)
    figures = []
    for seed in range(2):
        batch = fill_batch(E=5, N=4, seed=seed, token_budget=30, ranks=ranks)
        plan = agent.plan(batch)
        with reference.awake():
            batch.score(actor_critic, reference, plan[0])
        batch.penalise_kl(kl)
        batch.compute_returns(make_estimator(args.update))
        figures.append(agent.update(batch, plan) | {"kl": batch.mean_kl()})
    return figures


def main(out: str, stage: str, *models: str) -> None:
    ranks, results = make_ranks(3), {}
    args, actor_critic = load(str(TINY), stage, ranks)
    results["figures"] = train(args, actor_critic, ranks)
    results["weights"] = {n: w.double().square().sum().item() for n, w in actor_critic.weights()}
    actor_critic.export(Path(out).parent / f"model-{stage}", ranks.rank == 0)
    for model in models:
        peak = Peak()
        args, actor_critic = load(model, stage, ranks)
        results["model"] = ranks.gather([peak.highest])
        reference = make_reference(args.update, actor_critic)
        results["both"] = ranks.gather([peak.end()])
        assert not any(p.requires_grad for p in reference.parameters())
    if ranks.rank == 0:
        Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
