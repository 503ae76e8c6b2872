"""The time in which a process is suspended counts in no time limit."""

import os
import queue
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.awake import AwakeClock, awake_seconds, get_awake

ROOT = Path(__file__).resolve().parents[2]
LIMIT, SUSPENDED = 6, 8  # seconds


def test_the_clock_stands_still_while_nobody_reads_it():
    times = iter([10.0, 11.0, 11.5, 3611.5, 3612.5])
    clock = AwakeClock(now=lambda: next(times))
    # 1 and 0.5 s have passed; of the hour, 2 s count; then 1 s more
    assert [clock.seconds() for _ in range(4)] == [1.0, 1.5, 3.5, 4.5]


def test_an_item_is_waited_for():
    inbox = queue.SimpleQueue()
    with pytest.raises(queue.Empty):
        get_awake(inbox, 0.01)
    inbox.put(3)
    assert get_awake(inbox, 0) == 3


def test_a_forked_process_has_a_clock_of_its_own():
    awake_seconds()
    if (child := os.fork()) == 0:
        os._exit(int(awake_seconds() > 1))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


WAITS = """
import os, sys, threading, time
import gymnasium
from gymnasium.spaces import Text

def wait(name):
    open(f"{name}-begun", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.05)
    return name

def solve(seed, base_url, api_key, reward):
    wait("agent")
    raise KeyError("it went on")

class Waits(gymnasium.Env):
    observation_space = action_space = Text(100)
    def reset(self, *, seed=None, options=None):
        return "begin", {}
    def step(self, action):
        return wait("worker"), 1.0, False, False, {}

gymnasium.register("Waits-v0", Waits, max_episode_steps=5)

if __name__ == "__main__":
    from functools import partial
    from envs import make_env
    from envs.pool.resilient import ResilientPool
    from envs.tools.thread import ToolThread

    limit, said = float(sys.argv[1]), {}

    def agent():
        try:
            make_env("agent:waits:solve", timeout=limit).reset(seed=2)
        except Exception as error:
            said["agent"] = str(error)

    def tool():
        try:
            said["tool"] = ToolThread().call(partial(wait, "tool"), limit)
        except Exception as error:
            said["tool"] = str(error)

    pool = ResilientPool(partial(make_env, "waits:Waits-v0"), [[2, 4]], workers=1, timeout=limit)
    pool.reset()
    threads = [threading.Thread(target=each) for each in (agent, tool)]
    for thread in threads:
        thread.start()
    pool.send(0, "x")
    while not (turns := pool.poll()):
        pass
    said["worker"] = turns[0][1].fault or turns[0][1].observation.text
    for thread in threads:
        thread.join()
    print(sorted(said.items()))
    pool.close()
"""


def test_a_suspended_run_loses_no_turn(tmp_path):
    """A worker's turn, an agent and a tool have six seconds. All processes are stopped for eight,
    and go on when their trainer has had the time to look at its clock."""
    (tmp_path / "waits.py").write_text(WAITS)
    process = subprocess.Popen(
        [sys.executable, "waits.py", str(LIMIT)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    begun = [tmp_path / f"{name}-begun" for name in ("worker", "agent", "tool")]
    while not all(path.exists() for path in begun):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(SUSPENDED)
    os.killpg(process.pid, signal.SIGCONT)
    time.sleep(0.5)
    (tmp_path / "go").touch()
    assert process.communicate(timeout=60)[0] == (
        "[('agent', \"'it went on'\"), ('tool', 'tool'), ('worker', 'worker')]\n"
    )
