"""Workers outlive signals to the group; their environments start processes of their own."""

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from family_envs import Parent

from common.signals import ENDING
from envs.pool.serial import training_seeds

PATH = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]


def turn(vec_env, response: str):
    vec_env.send(0, response)
    [(_, step)] = vec_env.poll()
    return step


SIGNALLED = """
import os, signal, sys
sys.path[:0] = {path!r}
from small_envs import Dice
from common.signals import ENDING
from envs.pool.serial import training_seeds
from envs.pool.resilient import ResilientPool
os.setsid()
for number in ENDING:
    signal.signal(number, lambda *_: None)  # as the trainer, which saves and then ends
vec_env = ResilientPool(Dice, training_seeds(0, range(2)), workers=2)
for number in {early!r}:
    os.killpg(0, number)  # before a worker can say that it ignores them
vec_env.reset()
for number in ENDING:
    os.killpg(0, number)
for i in range(2):
    vec_env.send(i, "x")
while vec_env.asked:
    assert not any(step.fault for _, step in vec_env.poll())
print(vec_env.faults)
vec_env.close()
"""


@pytest.mark.parametrize("early", [[], ENDING])
def test_signals_to_the_group_leave_workers_alone(early):
    script = SIGNALLED.format(path=PATH, early=[int(number) for number in early])
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr


def test_an_environment_starts_processes_and_ends_them(pool):
    vec_env = pool(Parent, training_seeds(0, range(1)), 1)
    vec_env.reset()
    assert not turn(vec_env, "fork").fault
    assert turn(vec_env, "stop").response == "stop" and not vec_env.faults
    for _ in range(20):  # the signal may come before the new process has done anything
        assert not turn(vec_env, "fork stop").fault
    assert turn(vec_env, "program").kept_response.endswith(f"program {-signal.SIGTERM}")


@pytest.mark.parametrize("word", ["fork", "leak"])
def test_a_worker_that_dies_is_noticed_while_a_child_of_it_lives(pool, word):
    vec_env = pool(Parent, training_seeds(0, range(1)), 1, timeout=15)
    vec_env.reset()
    child = None
    if word == "fork":
        child = int(turn(vec_env, "fork").kept_response.split()[-1])
        step = turn(vec_env, "exit")
    else:
        step = turn(vec_env, "leak")
    assert step.fault.endswith("its worker died with exit code 7")
    then = list(islice(training_seeds(0, range(1))[0], 2))[1]
    assert step.first.text.startswith(f"seed {then} turn 0")
    if child:
        os.kill(child, signal.SIGKILL)
