"""A rank that dies ends the others within seconds, also blocked ones; an orderly end does not."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from common.errors import OtherRankFailed
from run import dead_ranks
from run.stop import Stopped

CONTEXT = multiprocessing.get_context("fork")


class Three:
    """Three ranks that meet in a file: only sockets can notice a death."""

    size, failure = 3, ""

    def __init__(self, rank: int, meeting):
        self.rank, self.meeting = rank, meeting

    def first(self, thing):
        if self.rank == 0:
            text = json.dumps([thing[0], thing[1].hex()])
            aside = self.meeting.with_suffix(".new")
            aside.write_text(text)
            aside.rename(self.meeting)
        while not self.meeting.exists():
            time.sleep(0.01)
        port, token = json.loads(self.meeting.read_text())
        return port, bytes.fromhex(token)


def play(rank: int, way: str, folder, barrier, late) -> None:
    """One rank. way: how it ends; late: a barrier that those pass who have left in order"""
    os.dup2(os.open(folder / f"err{rank}", os.O_CREAT | os.O_WRONLY), 2)
    os.environ["MASTER_ADDR"] = "localhost"
    ranks = Three(rank, folder / "meeting")
    try:
        with dead_ranks.Peers(ranks):
            barrier.wait()
            if way == "blocked":
                time.sleep(60)
            if way == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if way == "failed":  # at load, of which no gather tells
                os._exit(2)
            if way == "reported":
                ranks.failure = "told in a gather"
                raise RuntimeError
            if way == "told":
                raise OtherRankFailed
            if way == "stopped":
                raise Stopped(signal.SIGTERM)
    except (RuntimeError, Stopped):
        pass
    time.sleep(late * rank)  # an orderly end may take longer than the grace
    os._exit(0)


def outcomes(folder, ways: tuple, late: float = 0.0) -> list[tuple[int, str]]:
    """Play a rank in each of these ways; return the exit codes and standard errors."""
    barrier = CONTEXT.Barrier(3)
    ranks = [CONTEXT.Process(target=play, args=(k, way, folder, barrier, late))
             for k, way in enumerate(ways)]  # fmt: skip
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(50)
    return [(rank.exitcode, (folder / f"err{k}").read_text()) for k, rank in enumerate(ranks)]


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(dead_ranks, "GRACE_SECONDS", 0.1)


@pytest.mark.parametrize(
    ("ways", "gone", "code"),
    [
        (("blocked", "blocked", "killed"), 2, -signal.SIGKILL),
        (("killed", "blocked", "blocked"), 0, -signal.SIGKILL),
        (("blocked", "failed", "blocked"), 1, 2),
    ],
)
def test_a_rank_that_dies_ends_the_blocked_ones(ways, gone, code, tmp_path):
    ends = outcomes(tmp_path, ways)
    assert ends.pop(gone) == (code, "")
    others = [rank for rank in range(3) if rank != gone]
    end = f"another rank has ended (rank {gone})\n"
    assert ends == [(1, f"main.py: error: rank {rank}: {end}") for rank in others]


@pytest.mark.parametrize("ways", [("ended", "stopped", "reported"), ("ended", "ended", "told")])
def test_an_orderly_end_ends_no_other(ways, tmp_path):
    assert outcomes(tmp_path, ways, late=0.3) == [(0, "")] * 3
