"""A clock that stands still while the process is suspended.

Ctrl-Z, SIGSTOP, `scontrol suspend`, a frozen container or a sleeping laptop may stop a run for
hours. An environment that was stopped with it has not hung, so time limits are measured with this
clock. A thread reads the time every second: if more has passed than between two readings, the
process was suspended, and the rest does not count. Any folder may import this file.
"""

import os
import queue
import threading
import time

TICK_SECONDS = 1.0  # between two readings
MOST_SECONDS = 2.0  # that count between two readings, for the thread may be late


class AwakeClock:
    """Counts the seconds in which this process was awake. now: the clock that goes on meanwhile"""

    def __init__(self, now=time.monotonic):
        self.now, self.lock = now, threading.Lock()
        self.counted, self.read_at = 0.0, now()

    def seconds(self) -> float:
        """Return the seconds since the clock was made, without those of suspensions."""
        with self.lock:
            now = self.now()
            self.counted += min(now - self.read_at, MOST_SECONDS)
            self.read_at = now
            return self.counted

    def tick(self) -> None:
        """Read the time every second, for ever."""
        while True:
            time.sleep(TICK_SECONDS)
            self.seconds()


_CLOCK: list[AwakeClock] = []  # this process's, after the first call
_LOCK = threading.Lock()


def awake_seconds() -> float:
    """Return the seconds in which this process was awake since its first call of this function."""
    with _LOCK:
        if not _CLOCK:
            _CLOCK.append(AwakeClock())
            threading.Thread(target=_CLOCK[0].tick, daemon=True).start()
    return _CLOCK[0].seconds()


def get_awake(inbox: queue.Queue | queue.SimpleQueue, seconds: float):
    """Return the next item of a queue. queue.Empty: none came while the process was awake for
    `seconds`"""
    end = awake_seconds() + seconds
    while True:
        left = end - awake_seconds()
        try:
            return inbox.get(timeout=max(0.0, min(left, TICK_SECONDS)))
        except queue.Empty:
            if left <= 0:
                raise


def _forget() -> None:
    """A forked child starts a clock of its own: the thread, which may hold a lock, is not in it."""
    global _LOCK
    _LOCK = threading.Lock()
    _CLOCK.clear()


os.register_at_fork(after_in_child=_forget)
