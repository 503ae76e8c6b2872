"""How long a failed environment rests, and how many failures end the run.

An outage of a few minutes should not end a run, so an environment that keeps failing rests longer
each time. A single fault, after which the environment works again, counts in a rate. An environment
that always fails ends the run after FALSE_STARTS faults in a row, with about five minutes of rest
between them, and much sooner if no turn has worked yet.
"""

from collections import deque

from envs.errors import EnvError

MAX_FAULTS = 0.1  # share of the episodes begun that may fail
WINDOW = 200  # the share is taken over this many of the last episodes begun,
MIN_EPISODES = 20  # and over at least this many, because a share of few episodes is noisy
FALSE_STARTS = 12  # faults of one environment in a row, without a turn, that end the run
FIRST_STARTS = 3  # the same before any environment has completed a turn: the code is likely wrong
RESET_TRIES = 8  # attempts to begin an episode if the next seed is not known in advance
PAUSE_SECONDS = 1.0  # after the second failure in a row; each further failure doubles it
MAX_PAUSES = 60  # the longest pause, in units of PAUSE_SECONDS


def pause(failures: int) -> float:
    """Return the seconds of rest after so many failures in a row: 0, 1, 2, 4, ..., 60, 60."""
    return PAUSE_SECONDS * min(2 ** (failures - 2), MAX_PAUSES) if failures > 1 else 0.0


def check_false_starts(failures: int, worked: bool, line: str) -> None:
    """EnvError: so many faults of an environment in a row, without a turn, end the run.

    worked: whether any environment has completed a turn; line: describes the last fault
    """
    if failures == (FALSE_STARTS if worked else FIRST_STARTS):
        raise EnvError(f"{failures} faults in a row, without a turn among them: {line}")


class FaultRate:
    """The share of the last episodes begun that failed. max_faults: the largest share allowed"""

    def __init__(self, max_faults: float):
        self.max_faults, self.begun = max_faults, 0
        self.failed: deque[int] = deque()  # for each fault, how many episodes had begun

    def count(self, line: str) -> None:
        """Count a fault, described by `line`. EnvError: there were too many"""
        self.failed.append(self.begun)
        while self.failed[0] <= self.begun - WINDOW:
            self.failed.popleft()
        failed, begun = len(self.failed), min(self.begun, WINDOW)
        if failed > self.max_faults * max(begun, MIN_EPISODES):
            last = "the last " if self.begun > WINDOW else ""
            raise EnvError(f"{failed} of {last}{begun} episodes failed: {line}")
