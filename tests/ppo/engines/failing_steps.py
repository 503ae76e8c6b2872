"""Two ranks that share an engine play 4 steps, and something happens in the second on rank 1.

`failing_steps.py HOW SECONDS` on two ranks. Instead of vLLM there is an engine whose step is only a
collective. HOW says what happens: "inside" is an error before the collective, in which rank 0 is
blocked, "after" an error behind it, "both" an error on both ranks, "killed" the end of the process,
"signalled" a SIGTERM. SECONDS: in which a failure must be heard.
"""

import os
import signal
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[3])]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from common.errors import RanksApart  # noqa: E402
from ppo.distributed import make_ranks  # noqa: E402
from ppo.engines import shared  # noqa: E402
from ppo.engines.vllm_steps import Steps  # noqa: E402
from run.dead_ranks import Peers  # noqa: E402
from run.exit import exit_code  # noqa: E402
from run.stop import Signals, StoppableRanks, Stopped  # noqa: E402


class Engine:
    def __init__(self, how: str, rank: int):
        self.how, self.fails, self.steps = how, how == "both" or rank == 1, 0
        self.group = dist.new_group(backend="gloo")

    def has_unfinished_requests(self) -> bool:
        return True

    def step(self) -> list:
        self.steps += 1
        now = self.steps == 2 and self.fails
        if now and self.how == "inside":
            raise KeyError("block 3")
        if now and self.how in ("killed", "signalled"):
            number = signal.SIGKILL if self.how == "killed" else signal.SIGTERM
            os.kill(os.getpid(), number)
        dist.all_reduce(torch.ones(1), group=self.group)
        if now and self.how in ("after", "both"):
            raise KeyError("block 3")
        return []


def play(how: str, ranks: StoppableRanks) -> None:
    engine = Engine(how, ranks.rank)
    steps = Steps(engine, shared.Sharing(2), add_request=None)
    ranks.serve = steps.serve_others
    with Peers(ranks), ranks.signals, ranks.listening():
        for _ in range(4):
            ranks.check()
            steps.step()
        ranks.wait()


def say(line: str) -> None:
    """Write a line whole: print writes its end by itself, and the ranks share this stream."""
    os.write(2, f"{line}\n".encode())


if __name__ == "__main__":
    shared.HEARD_SECONDS = float(sys.argv[2])
    ranks = StoppableRanks(make_ranks(0), Signals())
    try:
        play(sys.argv[1], ranks)
    except Stopped as stopped:
        say(f"rank {ranks.rank}: {stopped}, saved")
    except Exception as error:
        if not isinstance(error, RanksApart):
            say(f"rank {ranks.rank}: saved")
        sys.exit(exit_code(error))
