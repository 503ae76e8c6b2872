"""Measures the phases of an update, and shows the current one on a terminal."""

import time
from collections.abc import Callable
from contextlib import contextmanager

from run.console import Console

PHASES = {  # phase -> the text shown on a terminal
    "collect": "collecting turns",
    "warmup": "training the critic",
    "eval": "evaluating",
    "score": "scoring",
    "update": "updating",
    "push": "pushing the weights",
}


class Timer:
    """`with timer("collect"): ...` adds to time/collect; `lap()` returns all times and restarts.

    console: shows the current phase
    """

    def __init__(self, console: Console):
        self.started, self.worked = time.perf_counter(), time.process_time()
        self.times, self.console = {}, console

    @contextmanager
    def __call__(self, name: str, progress: Callable[[], float] | None = None):
        """Time a phase, a key of PHASES. progress: returns the part that is done, from 0 to 1"""
        entered = time.perf_counter()
        with self.console.watching(PHASES[name], progress):
            yield
        key = f"time/{name}"
        self.times[key] = self.times.get(key, 0.0) + time.perf_counter() - entered

    def lap(self) -> dict[str, float]:
        """Return the seconds of each phase, of all together, and of the CPU since the last lap."""
        now, worked = time.perf_counter(), time.process_time()
        whole = {"time/total": now - self.started, "time/processor": worked - self.worked}
        times, self.started, self.worked, self.times = self.times | whole, now, worked, {}
        return times
