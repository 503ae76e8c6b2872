"""How long the parts of an update take, and on a terminal which part is under way."""

import time
from collections.abc import Callable
from contextlib import contextmanager

from run.console import Console

PHASES = {  # name of a time -> what a terminal says meanwhile
    "collect": "collecting turns",
    "warmup": "training the critic",
    "eval": "evaluating",
    "score": "scoring",
    "update": "updating",
    "push": "pushing the weights",
}


class Timer:
    """`with timer("collect"): ...` adds to time/collect; `lap()` returns all times and restarts.

    console: shows what is done now, and how far it is where a function tells
    """

    def __init__(self, console: Console):
        self.started, self.worked = time.perf_counter(), time.process_time()
        self.times, self.console = {}, console

    @contextmanager
    def __call__(self, name: str, progress: Callable[[], float] | None = None):
        entered = time.perf_counter()
        with self.console.watching(PHASES[name], progress):
            yield
        key = f"time/{name}"
        self.times[key] = self.times.get(key, 0.0) + time.perf_counter() - entered

    def lap(self) -> dict[str, float]:
        now, worked = time.perf_counter(), time.process_time()
        whole = {"time/total": now - self.started, "time/processor": worked - self.worked}
        times, self.started, self.worked, self.times = self.times | whole, now, worked, {}
        return times
