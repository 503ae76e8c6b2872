"""A run that ends early: by a signal in any phase, or by an error while turns are collected."""

import asyncio
import json
import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from real_runs import CLOCK, launch, load_checkpoint, start, wait_for

import main
from arguments import get_args
from common.errors import OtherRankFailed, RanksApart
from common.ranks import ALONE, Ranks
from ppo.engines.lockstep import TransformersEngine
from recipes import TINY
from run.saved import checkpoints
from run.stop import Signals, StoppablePool, StoppableRanks, Stopped

ROOT = Path(__file__).resolve().parents[2]
SMALL = """--env-name toy --n-env 2 --e-len 3 --num-updates 4 --minibatch 6 --w-epoch 1 --w-iter 2
--w-fraction 1 --lr 0.01 --critic-lr 0.01 --response-limit 6 --prompt-limit 8192 --save-interval 30
--eval-interval 2 --eval-episodes 2 --engine transformers"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
# Turns of environments in one file, one line each; a turn takes a tenth of a second.
SLOW = """
import os, time
import gymnasium
from gymnasium.spaces import Text

class Slow(gymnasium.Env):
    observation_space = action_space = Text(100)
    def reset(self, *, seed=None, options=None):
        return "go on", {}
    def step(self, action):
        time.sleep(0.1)
        with open(os.environ["TURNS"], "a") as out:
            out.write("turn\\n")
        return "go on", 0.0, False, False, {}

gymnasium.register("Slow-v0", Slow, max_episode_steps=50)
"""


def typed(run: Path, model: str, flags: str = "") -> list[str]:
    return [*SMALL.split(), "--model", model, "--run-dir", str(run), *flags.split()]


def outcome(run: Path) -> dict:
    """All that a run computed, without clock times."""
    logs = {}
    for name in ("metrics.jsonl", "eval.jsonl", "warmup.jsonl", "trajectories.jsonl"):
        records = map(json.loads, (run / name).read_text().splitlines())
        logs[name] = [{k: v for k, v in r.items() if not k.startswith(CLOCK)} for r in records]
    return logs | {"weights": (run / "model" / "model.safetensors").read_bytes()}


@pytest.fixture(scope="module")
def whole(model_dir, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "whole"
    assert main.main(get_args(typed(run, model_dir))) == 0
    return outcome(run)


# ---- errors while turns are collected -----------------------------------------------------------


async def cancel():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


def cancelled():
    return asyncio.run(cancel())  # its CancelledError is no Exception


@pytest.mark.parametrize("fail", [lambda: json.loads("{"), cancelled])
def test_an_error_in_collection_saves_the_last_update(
    fail, whole, model_dir, tmp_path, monkeypatch, capsys
):
    step, calls = TransformersEngine.step, []

    def failing(self):
        calls.append(self)
        return fail() if len(calls) == 20 else step(self)

    monkeypatch.setattr(TransformersEngine, "step", failing)
    run = tmp_path / "run"
    with pytest.raises((json.JSONDecodeError, asyncio.CancelledError)):  # a bug keeps its traceback
        main.program(typed(run, model_dir))
    monkeypatch.undo()
    # the first checkpoint is of update 0; the last one is of the update that could not be collected
    logged = len((run / "metrics.jsonl").read_text().splitlines())
    assert load_checkpoint(run)["update"] == logged > 0
    assert main.main(get_args(["--resume", str(run)])) == 0
    assert outcome(run) == whole


FAILING = """
import gymnasium, os
from gymnasium.spaces import Text
from envs.pool import faults

faults.PAUSE_SECONDS = 0.01  # seconds; the twelve tries would take minutes

class Failing(gymnasium.Env):
    observation_space = action_space = Text(100)
    turns = 0
    def reset(self, *, seed=None, options=None):
        return "go on", {}
    def step(self, action):
        Failing.turns += 1
        if Failing.turns > 20 and os.environ.get("RANK", "1") == "1":
            raise OSError("the service is away")
        return "go on", 0.0, Failing.turns % 3 == 0, False, {}

gymnasium.register("Failing-v0", Failing, max_episode_steps=50)
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_environments_that_fail_for_good_end_a_run_that_is_saved(ranks, model_dir, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    flags = "--env-name failing:Failing-v0 --num-updates 40 --eval-interval 0"
    process = launch(tmp_path, *typed(tmp_path / "run", model_dir, flags), ranks=ranks)
    output = process.communicate(timeout=240)[0]
    assert process.returncode == 1
    (line,) = [line for line in output.splitlines() if line.startswith("main.py: error: ")]
    assert ("rank 1: " in line) == (ranks == 2)
    if ranks == 2:  # which plays one of the two environments, and counts over all ranks
        assert "environment 1 (failing:Failing-v0), seed" in line
    assert "the service is away" in line and f"--resume {tmp_path / 'run'}" in line
    logged = len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert load_checkpoint(tmp_path / "run")["update"] == logged > 0


LATE = """
import gymnasium
from gymnasium.spaces import Text

class Late(gymnasium.Env):
    observation_space = action_space = Text(100)
    made = 0
    def __init__(self):
        Late.made += 1
        if Late.made == 3:  # two are for the training, and the next is an evaluation's
            raise OSError("the service is away")
    def reset(self, *, seed=None, options=None):
        return "go on", {}
    def step(self, action):
        return "go on", 0.0, False, False, {}

gymnasium.register("Late-v0", Late, max_episode_steps=5)
"""


def test_an_evaluation_that_cannot_begin_tries_again(model_dir, tmp_path, monkeypatch):
    (tmp_path / "late.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    flags = "--env-name late:Late-v0 --num-updates 1 --w-epoch 0"
    assert main.main(get_args(typed(run, model_dir, flags))) == 0
    first, *_ = map(json.loads, (run / "eval.jsonl").read_text().splitlines())
    assert (first["eval/episodes"], first["eval/env_faults"]) == (2, 1)
    (fault,) = map(json.loads, (run / "faults.jsonl").read_text().splitlines())
    assert fault["env"] == 0 and "the service is away" in fault["error"]


def test_a_rank_that_is_killed_ends_the_others_with_a_line(model_dir, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    flags = "--env-name slow:Slow-v0 --num-updates 400 --eval-interval 0 --w-epoch 0"
    process = launch(tmp_path, *typed(tmp_path / "run", model_dir, flags), ranks=2)
    wait_for(process, "update    2/400")
    os.kill(process.pids[1], signal.SIGKILL)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "main.py: error: rank 0: another rank has ended" in output


# ---- signals ------------------------------------------------------------------------------------


def count(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("warm-up", signal.SIGTERM),
        ("warm-up", signal.SIGUSR1),
        ("collection", signal.SIGHUP),
        ("collection", signal.SIGUSR1),
        ("evaluation", signal.SIGUSR2),
    ],
)
def test_a_signal_is_obeyed_within_a_turn(phase, number, model_dir, tmp_path):
    """A batch of 2 x 60 turns would take 12 s; after the signal each environment may end its turn.
    In the end the run goes on, and is as long as it was to be."""
    (tmp_path / "slow.py").write_text(SLOW)
    evaluation = "--eval-interval 1 --eval-episodes 4" if phase == "evaluation" else ""
    flags = f"--env-name slow:Slow-v0 --e-len 60 --minibatch 120 --eval-interval 0 {evaluation}"
    flags += f" --w-epoch {int(phase == 'warm-up')} --num-updates 3"
    if phase == "evaluation":
        flags += " --e-len 1 --minibatch 2"
    run, turns = tmp_path / "run", tmp_path / "turns"
    process = launch(tmp_path, *typed(run, model_dir, flags))
    wait_for(process, {"warm-up": "critic warm-up", "collection": "ranks 1",
                       "evaluation": "update    1/3"}[phase])  # fmt: skip
    before = count(turns)
    while count(turns) < before + 4:
        time.sleep(0.02)
    process.send_signal(number)
    at = count(turns)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + number, output
    assert count(turns) <= at + 4 and "Traceback" not in output
    saved = "nothing to save yet; begin again" if phase == "warm-up" else "saved; go on"
    assert f"{number.name}: {saved} with: python main.py --resume {run}" in output
    assert len(checkpoints(run)) == {"warm-up": 0, "collection": 1, "evaluation": 2}[phase]


def test_a_run_that_was_stopped_in_its_warm_up_begins_again(whole, model_dir, tmp_path):
    run = tmp_path / "run"
    process = launch(tmp_path, *typed(run, model_dir))
    wait_for(process, "critic warm-up on")
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + signal.SIGTERM, output
    if re.search("nothing to save yet", output):  # else it was already training
        assert not checkpoints(run)
    assert main.main(get_args(["--resume", str(run)])) == 0
    assert outcome(run) == whole


def test_a_signal_to_the_whole_group_finds_the_workers_alive(whole, model_dir, tmp_path):
    """Launchers and service managers signal all processes of a run."""
    run = tmp_path / "run"
    process = launch(tmp_path, *typed(run, model_dir, "--env-workers 2 --num-updates 4"))
    wait_for(process, "update    1/4")
    os.killpg(process.pid, signal.SIGTERM)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "SIGTERM: saved; go on" in output and "Traceback" not in output
    assert main.main(get_args(["--resume", str(run), "--env-workers", "0"])) == 0
    assert outcome(run)["metrics.jsonl"][-1]["update"] == 4


def test_a_signal_to_two_ranks_is_obeyed_by_both(model_dir, tmp_path):
    run = tmp_path / "run"
    (tmp_path / "slow.py").write_text(SLOW)
    flags = "--env-name slow:Slow-v0 --e-len 20 --minibatch 40 --eval-interval 0 --w-epoch 0"
    words = typed(run, model_dir, flags + " --num-updates 99")
    process = start(tmp_path, *words, launcher=TORCHRUN)
    wait_for(process, "update    1/99")
    process.send_signal(signal.SIGTERM)  # the launcher hands it on
    output = process.communicate(timeout=120)[0]
    assert "SIGTERM: saved; go on with: python main.py --resume" in output, output
    assert load_checkpoint(run)["update"] >= 1


def test_a_signal_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            ranks = StoppableRanks(ALONE, signals)
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.received is None and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.received == signal.SIGTERM
            assert ranks.gather([1]) == [1]  # nothing would be saved here
            with pytest.raises(Stopped) as stopped, ranks.listening():
                ranks.wait()
            assert stopped.value.number == signal.SIGTERM and not ranks.listens
    finally:
        signal.signal(signal.SIGHUP, before)


# ---- how ranks end together -------------------------------------------------------------------


class Threads(Ranks):
    """Ranks that are threads of this process: a gather waits until all of them are there."""

    def __init__(self, rank: int, barrier: threading.Barrier, lists: list):
        self.rank, self.size, self.barrier, self.lists = rank, len(lists), barrier, lists

    def gather(self, items: list) -> list:
        self.lists[self.rank] = items
        self.barrier.wait(10)
        gathered = [item for part in self.lists for item in part]
        self.barrier.wait(10)
        return gathered


def both(*programs) -> list:
    """Run program(ranks) on two ranks; return what each returned or raised."""
    barrier, lists = threading.Barrier(2), [None, None]

    def one(rank: int):
        try:
            return programs[rank](StoppableRanks(Threads(rank, barrier, lists)))
        except Exception as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(2)))


def collecting(ranks, happens=lambda ranks: None):
    """A collection of three polls, which then gathers twice."""
    pool = StoppablePool(SimpleNamespace(poll=lambda wait: []), ranks)
    with ranks.listening():
        ranks.wait()
        for turn in range(3):
            if turn == 1:
                happens(ranks)
            pool.poll()
        return ranks.gather([ranks.rank]) + ranks.gather([10 + ranks.rank])


def signalled(ranks):
    ranks.signals.received = signal.SIGTERM


def broken(ranks):
    raise KeyError("torn")


def test_stoppable_ranks_gather_as_others_do():
    assert both(collecting, collecting) == [[0, 1, 10, 11]] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_signalled_ends_the_others_where_they_gather_next(rank):
    programs = [collecting, collecting]
    programs[rank] = partial(collecting, happens=signalled)
    assert [str(error) for error in both(*programs)] == ["SIGTERM"] * 2
    assert [type(error) for error in both(*programs)] == [Stopped] * 2


def test_a_rank_that_fails_tells_the_others():
    failed, other = both(partial(collecting, happens=broken), collecting)
    assert isinstance(failed, KeyError) and isinstance(other, OtherRankFailed)
    assert str(other) == "rank 0: KeyError: 'torn'"


def test_a_failure_in_a_common_step_is_not_reported():
    """The others are blocked in it, so no gather would come to an end."""

    def fails(ranks):
        with ranks.listening(), ranks.together():
            raise KeyError("torn")

    failed, _ = both(fails, lambda ranks: None)
    assert isinstance(failed, RanksApart) and str(failed) == "KeyError: 'torn'"
    with pytest.raises(KeyError):
        fails(StoppableRanks())  # which is alone


def test_a_failure_takes_precedence_over_a_signal():
    failed, other = both(
        partial(collecting, happens=broken), partial(collecting, happens=signalled)
    )
    assert isinstance(failed, KeyError) and isinstance(other, OtherRankFailed)


def test_a_signal_while_a_rank_waits_counts_at_the_next_gather():
    def late(ranks):
        gather = ranks.ranks.gather
        with ranks.listening():

            def signalled_meanwhile(items):
                gathered = gather(items)
                signalled(ranks)
                return gathered

            ranks.ranks.gather = signalled_meanwhile
            assert ranks.gather([0]) == [0, 1]  # this rank has reported no signal
            ranks.wait()

    def other(ranks):
        with ranks.listening():
            assert ranks.gather([1]) == [0, 1]
            ranks.wait()

    assert [type(error) for error in both(late, other)] == [Stopped] * 2


SRUN = """#!/bin/bash
echo "srun $*" >> calls
exit $CODE
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >> calls
"""


@pytest.mark.parametrize(
    ("code", "requeued"),
    [(0, False), (1, False), (2, False), (138, True), (143, False)],  # 143: scancel
)
def test_the_slurm_script_of_the_docs_requeues_a_run_that_was_stopped(code, requeued, tmp_path):
    """srun and scontrol are stand-ins that write down how they were called."""
    page = (ROOT / "docs" / "run-directory.md").read_text(encoding="utf-8")
    script = page.split("```bash\n#!/bin/bash\n")[1].split("```")[0]
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "CODE": str(code)}
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=variables)
    called = (tmp_path / "calls").read_text().splitlines()
    assert ended.returncode == code
    assert called[1:] == (["scontrol requeue 7"] if requeued else [])
    assert called[0].startswith("srun python main.py ")
    args = get_args(called[0].split()[3:] + ["--model", str(TINY)])
    assert args.resume is None and args.run_dir.name == "goto"  # auto: there is no such run yet
