"""One environment (`Slot`), and a process in which several of them live (`Worker`).

What fails in an environment is an answer like any other (`Fault`); the process lives on. It ends
on request and with its parent, even while an environment hangs. Who is to blame when it dies, and
what the others do then, is decided in `envs.vec_env`.
"""

import contextlib
import ctypes
import functools
import math
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
import types
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from envs.text_env import Observation, Step

START = -1  # in the place of an environment: a worker's first answer, that all of them are made
START_SECONDS = 60  # that a process has for it, however short the timeout
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


class EnvError(RuntimeError):
    """The run cannot go on: environments fail too often, or cannot be made at all."""


class Fault(Exception):
    """An environment failed, hung, or took its worker with it."""

    def __init__(self, error: str, traceback: str = ""):
        super().__init__(error, traceback)
        self.error, self.traceback = error, traceback


class Slot:
    """An environment whose answers are checked and turned into Steps; remade after a fault."""

    def __init__(self, make: Callable):
        self.make, self.env, self.failed = make, make(), False

    def call(self, method: str, *args):
        """The method's answer, or what went wrong in it as a Fault."""
        try:
            return getattr(self, method)(*args)
        except (Exception, SystemExit) as error:
            self.failed = True
            return Fault(repr(error)[:1000], traceback.format_exc())

    def reset(self, seed: int) -> Observation:
        if self.failed:  # nobody knows what state it is in
            self.close()
            self.env, self.failed = self.make(), False
        return _observation(*self.env.reset(seed=seed))

    def step(self, response: str) -> Step:
        text, reward, terminated, truncated, info = self.env.step(response)
        if not math.isfinite(reward):
            raise ValueError(f"a reward must be a finite number, got {reward!r}")
        return Step(
            response=response,
            said=_text(info, "said"),
            action=_text(info, "action"),
            valid=bool(info["valid"]),
            action_at=int(info["action_at"]),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=bool(info["success"]),
            observation=_observation(text, info),
            metrics={str(name): float(x) for name, x in info.get("metrics", {}).items()},
        )

    def render(self) -> np.ndarray:
        return self.env.render()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.env.close()


def _observation(text: str, info: dict) -> Observation:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"an observation must be a text that is not empty, got {text!r}")
    return Observation(text, *(_text(info, name) for name in ("kept", "system", "instruction")))


def _text(info: dict, name: str) -> str:
    if not isinstance(info[name], str):
        raise ValueError(f"info[{name!r}] must be a text, got {info[name]!r}")
    return info[name]


def name_of(make: Callable) -> str:
    """What error messages call the environments of `make`, mostly partial(make_env, name)."""
    if isinstance(make, functools.partial):
        named = make.args and isinstance(make.args[0], str)
        return make.args[0] if named else name_of(make.func)
    return getattr(make, "__name__", repr(make))


class Worker:
    """The parent's end of a process with the environments `owned`; it answers in order.

    timeout: seconds for one answer
    asked: whose requests it has not answered yet; START before all others
    unsent: whose requests it did not live to see
    """

    def __init__(self, make: Callable, owned: list[int], timeout: float):
        self.make, self.owned, self.timeout = make, owned, timeout
        self.start()

    def start(self) -> None:
        self.asked, self.unsent, self.late = deque([START]), [], False
        self.connection, self.process = _spawn(self.make, self.owned)
        self.since = time.monotonic()  # when it began with the first of `asked`

    def ask(self, i: int, method: str, *args) -> None:
        try:
            self.connection.send((i, method, args))
        except OSError:
            self.unsent.append(i)
            return
        if not self.asked:
            self.since = time.monotonic()
        self.asked.append(i)

    def receive(self):
        """The next answer, (i, answer). EOFError, OSError: it died."""
        i, answer = self.connection.recv()
        assert i == self.asked[0], f"environment {i} answered before {self.asked[0]}"
        self.asked.popleft()
        self.since = time.monotonic()
        return i, answer

    @property
    def limit(self) -> float:
        """Seconds for the answer that it is at."""
        starts = self.asked and self.asked[0] == START
        return max(self.timeout, START_SECONDS) if starts else self.timeout

    @property
    def left(self) -> float:
        """Seconds until it counts as hanging."""
        return self.since + self.limit - time.monotonic() if self.asked else math.inf

    def kill(self) -> None:
        """It hangs. What it said before is still in the pipe, and then the pipe's end."""
        self.late = True
        self.process.kill()

    def obituary(self) -> Fault:
        """Why it ended. EnvError: before its environments were made."""
        self.process.join(timeout=5)
        error = f"its worker died with exit code {self.process.exitcode}"
        if self.late:
            error = f"no answer within {self.limit:g} s, its worker was killed"
        if self.asked and self.asked[0] == START:
            envs = ", ".join(map(str, self.owned))
            raise EnvError(f"environments {envs} ({name_of(self.make)}) were not made: {error}")
        return Fault(error)

    def restart(self) -> None:
        self.bury()
        self.start()

    def bury(self) -> None:
        self.process.kill()
        self.process.join(timeout=5)
        self.connection.close()

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            self.connection.send(None)

    def await_end(self, deadline: float) -> None:
        """Let it close its environments until then, a time of time.monotonic; kill what is left."""
        with contextlib.suppress(EOFError, OSError):
            while self.connection.poll(max(0, deadline - time.monotonic())):
                self.connection.recv()  # a last answer may stand in its way
        if time.monotonic() < deadline:
            self.process.join(timeout=1)
        self.bury()


def _spawn(make: Callable, owned: list[int]):
    """Start a process; returns (connection, process).

    It makes its environments and says (START, None), or sends the exception and ends. Then it
    takes (i, method of Slot, arguments) and answers (i, result). None ends it.
    """
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=_work, args=(there, make, owned, os.getpid()), daemon=True)
    # A spawned process imports its parent's __main__: main.py, and with it torch, for nothing.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    there.close()  # now the death of the worker is the end of the pipe
    return here, process


def _work(connection: Connection, make: Callable, owned: list[int], parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _die_with(parent)
    inbox = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        slots = {i: Slot(make) for i in owned}
    except ValueError as error:  # a user's mistake, said in one line
        return connection.send((START, ValueError(str(error))))
    except Exception as error:
        message = f"{name_of(make)}: {error!r}\n{traceback.format_exc()}"
        return connection.send((START, EnvError(message)))
    connection.send((START, None))
    for i, method, args in iter(inbox.get, None):
        connection.send((i, slots[i].call(method, *args)))
    for slot in slots.values():
        slot.close()


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent is gone.

    The thread that reads the pipe notices it too, but not while an environment hangs in C code.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            os._exit(0)


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
