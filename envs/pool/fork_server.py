"""Starts the processes of workers. Those of agents are forked from a server, which has imported the
program and loaded the tokenizer before.

A process for each agent is affordable only so: forked ones start in a moment and share the memory
of the libraries. Other environments, and systems whose libraries do not survive a fork (macOS),
have new processes, which import everything themselves.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import forkserver

from common.signals import blocked
from envs import AGENT
from envs.errors import EnvError, name_of

VARIABLE = "TURNWISE_PRELOADED"  # tells the server what to import
PRELOADED = "envs.pool.preloaded"


def start_process(make: Callable, target: Callable, args: tuple):
    """Start a process that calls target(*args), with the signals of `blocked` blocked.

    make: makes its environments. EnvError: an agent's program ended the server
    """
    name = name_of(make)
    if sys.platform != "linux" or not name.startswith(AGENT):
        process = multiprocessing.get_context("spawn").Process(target=target, args=args)
        with blocked():
            process.start()
        return process
    ensure_server(name.removeprefix(AGENT), make.keywords)
    process = multiprocessing.get_context("forkserver").Process(target=target, args=args)
    try:
        process.start()  # waits for the imports, so the signals must not be blocked here
    except EOFError as error:
        raise EnvError(f"{name}: the process that imported it died") from error
    return process


def ensure_server(program: str, options: dict) -> None:
    """Start the server, unless it runs. options: of `envs.agents.agent.AgentEnv`"""
    forkserver.set_forkserver_preload([PRELOADED])
    before = dict(os.environ)
    wanted = dict(name=program, path=before.get("PYTHONPATH"))
    wanted |= {key: options[key] for key in ("tokenizer", "template") if key in options}
    os.environ[VARIABLE] = json.dumps(wanted)
    # until Python 3.12 the server's path has only what this variable names
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, sys.path))
    try:
        with blocked():
            forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
