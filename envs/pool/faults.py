"""How long an environment that failed rests, and how many failures end the run.

An outage of a few minutes ends no run: an environment that fails again and again rests longer each
time. A fault after which the environment works at once counts in a rate. An environment that always
fails ends the run after FALSE_STARTS faults in a row, with about five minutes of rest among them;
as long as no turn has worked, much sooner.
"""

from collections import deque

from envs.contract import EnvError

MAX_FAULTS = 0.1  # share of the episodes begun that may fail
WINDOW = 200  # the share is taken of this many episodes, the last ones,
FEW = 20  # and of at least this many: of fewer it says little
FALSE_STARTS = 12  # faults in a row of one environment, without a turn among them, that end the run
FIRST_STARTS = 3  # the same where nobody has completed a turn: probably the code is wrong
TRIES = 8  # tries of an episode that cannot begin, where nobody knows which one would follow
PAUSE, MAX_PAUSES = 1.0, 60  # seconds that the pauses are counted in, and the longest pause


def pause(failures: int) -> float:
    """Return the seconds of rest after so many failures in a row: 0, 1, 2, 4, ..., 60, 60."""
    return PAUSE * min(2 ** (failures - 2), MAX_PAUSES) if failures > 1 else 0.0


class FaultRate:
    """The share of the last episodes begun that failed. max_faults: the largest that may be"""

    def __init__(self, max_faults: float):
        self.max_faults, self.begun = max_faults, 0
        self.failed: deque[int] = deque()  # for each fault, how many episodes had begun

    def count(self, line: str) -> None:
        """Count a fault. EnvError: there have been too many; `line` tells of the last one"""
        self.failed.append(self.begun)
        while self.failed[0] <= self.begun - WINDOW:
            self.failed.popleft()
        failed, begun = len(self.failed), min(self.begun, WINDOW)
        if failed > self.max_faults * max(begun, FEW):
            last = "the last " if self.begun > WINDOW else ""
            raise EnvError(f"{failed} of {last}{begun} episodes failed: {line}")
