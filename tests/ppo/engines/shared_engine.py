"""Plays turns as `main.collect` does, on ranks that share one vLLM or on one rank alone.

    torchrun --nproc-per-node 2 tests/ppo/engines/shared_engine.py OUT.json 2

The ranks have unequally many turns, and in the second batch the first rank has none. It writes what
all have sampled.
"""

import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3])]

import torch  # noqa: E402
from conftest import make_prompt  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from ppo.distributed import make_ranks  # noqa: E402
from ppo.engines.vllm import VLLMEngine  # noqa: E402
from ppo.model.make import build  # noqa: E402
from recipes import TINY  # noqa: E402
from run.stop import StoppableRanks  # noqa: E402

TURNS = [0, 1, 2, 4]  # of each environment; batch b leaves environment b out
PREFIX = [3 + (7 * k) % 300 for k in range(70)]  # two blocks of the prefix cache and some


def play(engine, share: range, batch: int) -> dict:
    """Return (environment, turn) -> ids and log-probs. A complete response brings a next prompt."""
    played = {}

    def ask(env: int, turn: int) -> None:
        if turn < TURNS[env] and env != batch:
            engine.submit(env, make_prompt([*PREFIX, env, turn]), seed=(batch, env, turn))

    for env in share:
        ask(env, 0)
    while sum(env != batch and TURNS[env] for env in share) > len(played):
        for env, response in engine.step():
            turn = sum(known[0] == env for known in played)
            played[env, turn] = response.ids, response.logps
            ask(env, turn + 1)
    return played


def main(out: str, sharing: str) -> None:
    ranks = StoppableRanks(make_ranks(0))
    lm = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    engine = VLLMEngine(
        AutoTokenizer.from_pretrained(TINY), {2}, 12, 1.0, model=str(TINY), prompt_limit=80,
        dtype="float32", seed=0, gpu_memory_utilization=0.3, max_num_seqs=len(TURNS),
        sharing=int(sharing),
    )  # fmt: skip
    ranks.serve, batches = engine.serve_others, []
    for batch in range(2):
        if batch:
            with torch.no_grad():
                for p in lm.parameters():
                    p.mul_(1.05)
        engine.push_weights(build(lm, 0))
        played = play(engine, ranks.share(len(TURNS)), batch)
        batches.append([[*key, *value] for key, value in sorted(ranks.gather([*played.items()]))])
        assert engine.idle
    about = {"gap": engine.push_gap, "batches": batches}
    if ranks.rank == 0:
        Path(out).write_text(json.dumps(about))


if __name__ == "__main__":
    main(*sys.argv[1:])
