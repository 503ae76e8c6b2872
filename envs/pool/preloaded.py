"""What the server of `envs.pool.fork_server` imports before it forks.

Frameworks import much only when a program first asks, which would take each worker a second or two.
So a process plays a trial episode and tells what it has imported; then the server imports it, too.

A mistake of the user's is left to the workers, which report it. A program that starts threads must
not be forked, because their locks may be held; then, or if its import takes too long, the server
begins again without it, and each worker imports it by itself.
"""

import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NoReturn

import numpy as np

from envs.agents.agent import AgentEnv
from envs.agents.threads import GRACE_SECONDS
from envs.pool.fork_server import VARIABLE
from envs.pool.worker import START_SECONDS
from envs.pool.worker_process import die_with_parent

TRIAL_TURNS = 4
TRIAL_SECONDS = 20.0  # at most, for all of them


def preload() -> None:
    """Import the program, with what it imports when it asks, and load its tokenizer."""
    die_with_parent()
    begun = dict(os.environ)
    wanted = json.loads(os.environ.pop(VARIABLE))
    if (path := wanted.pop("path")) is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path

    def begin_again(*_) -> None:
        environment = begun | {VARIABLE: json.dumps({"path": path})}
        os.execve(sys.executable, sys.orig_argv, environment)

    if wanted:
        signal.signal(signal.SIGALRM, begin_again)
        signal.alarm(START_SECONDS)
        with suppress(Exception, SystemExit):
            env = AgentEnv(**wanted, prompt_limit=2**20, sampling="run")  # refuses little
            env.tokens.count("")
            import_all(modules_of_trial(env))
        signal.alarm(0)
    if threading.active_count() > 1:
        begin_again()
    os.register_at_fork(after_in_child=np.random.seed)  # Python's own state does so by itself
    gc.collect()
    gc.freeze()  # a later collection would write to the pages that the workers share


def modules_of_trial(env: AgentEnv) -> list[str]:
    """Return what is imported after the first turns of an episode; [] if they take too long."""
    ours, theirs = multiprocessing.Pipe()
    if (trial := os.fork()) == 0:
        play_trial(env, theirs)
    theirs.close()
    try:
        return ours.recv() if ours.poll(TRIAL_SECONDS) else []
    finally:
        os.kill(trial, signal.SIGKILL)
        os.waitpid(trial, 0)


def play_trial(env: AgentEnv, answer: Connection) -> NoReturn:
    """Play the beginning of an episode with the response "OK", in silence, and end the process."""
    try:
        die_with_parent()
        signal.alarm(0)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        with suppress(Exception):
            env.reset(seed=0)
            for _ in range(TRIAL_TURNS):
                if any(env.step("OK")[2:4]):
                    break
        env.close()
        env.thread.join(GRACE_SECONDS)
        answer.send(list(sys.modules))
    finally:
        os._exit(0)


def import_all(names: list[str]) -> None:
    for name in names:
        with suppress(Exception, SystemExit):
            importlib.import_module(name)


if VARIABLE in os.environ:
    preload()
