"""One environment with its seeds (`Slot`), and the process in which several of them live.

A worker answers the requests of `envs.vec_env` in their order. It ends on request, after an
error (which it sends first) and when its parent is gone, even while an environment hangs.
"""

import functools
import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection

import numpy as np

from envs.text_env import Observation, Step


class EnvError(RuntimeError):
    """An environment failed, or the worker that holds it died."""


class Slot:
    """Environment i: turns its answers into Steps and starts the next episode when one ends."""

    def __init__(self, i: int, make: Callable, seeds: Iterable[int]):
        self.i, self.name, self.seeds = i, name_of(make), iter(seeds)
        self.seed, self.steps = None, 0
        self.env = make()

    def call(self, method: str, *args):
        """Run a method; whatever fails in it names the environment, its seed and its step."""
        try:
            return getattr(self, method)(*args)
        except Exception as error:
            where = f"environment {self.i} ({self.name}), seed {self.seed}, step {self.steps}"
            raise EnvError(f"{where}: {error!r}\n{traceback.format_exc()}") from error

    def reset(self) -> Observation | None:
        self.seed, self.steps = next(self.seeds, None), 0
        if self.seed is None:
            return None
        return _observation(*self.env.reset(seed=self.seed))

    def step(self, response: str) -> Step:
        if self.seed is None:
            raise ValueError("this environment has no episode to play, nothing may be sent to it")
        self.steps += 1
        text, reward, terminated, truncated, info = self.env.step(response)
        return Step(
            response=response,
            said=info["said"],
            action=info["action"],
            valid=info["valid"],
            action_at=info["action_at"],
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=bool(info["success"]),
            observation=_observation(text, info),
            first=self.reset() if terminated or truncated else None,
            metrics=info.get("metrics", {}),
        )

    def render(self) -> np.ndarray:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _observation(text: str, info: dict) -> Observation:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"an observation must be a text that is not empty, got {text!r}")
    return Observation(text, info["kept"], info["system"], info["instruction"])


def name_of(make: Callable) -> str:
    """What error messages call the environments of `make`, mostly partial(make_env, name)."""
    if isinstance(make, functools.partial) and make.args:
        return str(make.args[0])
    return getattr(make, "__name__", repr(make))


def start_worker(make: Callable, seeds: dict[int, Iterable[int]]):
    """Start a process with the environments that are the keys of `seeds`.

    Returns (connection, process). It takes (i, method of Slot, arguments) and answers (i, result),
    or an exception after which it ends; None ends it.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_work, args=(there, make, seeds), daemon=True)
    # A spawned process imports its parent's __main__: main.py, and with it torch, for nothing.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    there.close()  # now the death of the worker is the end of the pipe
    return here, process


def _work(connection: Connection, make: Callable, seeds: dict[int, Iterable[int]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    inbox = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    slots = {}
    try:
        for i in seeds:
            slots[i] = Slot(i, make, seeds[i])
        for i, method, args in iter(inbox.get, None):
            connection.send((i, slots[i].call(method, *args)))
    except EnvError as error:
        connection.send(error)
    except ValueError as error:  # of make(): a user's mistake, said in one line
        connection.send(ValueError(str(error)))
    except Exception as error:
        connection.send(EnvError(f"{name_of(make)}: {error!r}\n{traceback.format_exc()}"))
    for slot in slots.values():
        slot.close()


def _read(connection: Connection, inbox: queue.SimpleQueue) -> None:
    """A thread that empties the pipe: a busy environment must not block the parent's send."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone; a hanging environment must not outlive it
        inbox.put(message)
        if message is None:
            return
