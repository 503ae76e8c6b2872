"""What the server of `envs.pool.fork_server` imports before it forks.

A mistake of the user's is left to the workers, which report it. A program that starts threads must
not be forked, because their locks may be held; then, or if its import takes too long, the server
begins again without it, and each worker imports it by itself.
"""

import gc
import json
import os
import signal
import sys
import threading
from contextlib import suppress

import numpy as np

from envs.agents.agent import AgentEnv
from envs.pool.fork_server import VARIABLE
from envs.pool.worker import START_SECONDS
from envs.pool.worker_process import die_with_parent


def preload() -> None:
    """Import the program and load its tokenizer."""
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
            AgentEnv(**wanted).tokens.count("")
        signal.alarm(0)
    if threading.active_count() > 1:
        begin_again()
    os.register_at_fork(after_in_child=np.random.seed)  # Python's own state does so by itself
    gc.collect()
    gc.freeze()  # a later collection would write to the pages that the workers share


if VARIABLE in os.environ:
    preload()
