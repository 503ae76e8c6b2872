"""How a run ends early: a signal or an error saves the state before the update under way.

On many ranks all end together: every rank asks `now()` at the same places, and learns there what
another rank was told or has met.
"""

import os
import signal
import sys
from asyncio import CancelledError
from contextlib import contextmanager

from common.cli import command
from common.errors import OtherRankFailed, RunError
from common.ranks import ALONE, Ranks
from run.exit import is_check, one_line


class Stop:
    """`with Stop(ranks) as stop:` SIGTERM, SIGHUP and SIGINT ask the loop to save and to end.

    signalled: the signal that this rank got; asked: the one that all ranks have agreed to obey
    A second Ctrl-C ends the process at once.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def __init__(self, ranks: Ranks = ALONE):
        self.signalled, self.asked, self.failed, self.ranks = None, None, "", ranks
        self.before = {}  # signal -> its handler before

    def __enter__(self) -> "Stop":
        for number in self.SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup's choice stays
                self.before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame) -> None:
        self.signalled = signal.Signals(number)
        if signal.SIGINT in self.before:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        said = f"{self.signalled.name}: the run is saved and ends; Ctrl-C ends it at once"
        try:
            os.write(2, f"\n{said}\n".encode())  # not print: the loop may be inside one
        except OSError:  # the terminal is gone, and a print would end the run before it is saved
            sys.stdout = sys.stderr = open(os.devnull, "w", errors="replace")

    def now(self) -> bool:
        """Return whether any rank was asked to end; `asked` is then the same on all ranks.

        OtherRankFailed: another rank met an error since the last call
        """
        told = self.ranks.gather([(self.signalled, self.failed)])
        failed = [f"rank {rank}: {why}" for rank, (_, why) in enumerate(told) if why]
        if failed and not self.failed:
            raise OtherRankFailed(failed[0])
        # Only what was told counts: this rank may be signalled while it waits for the others.
        self.asked = next((number for number, _ in told if number), None)
        return self.asked is not None

    @contextmanager
    def saving(self, checkpoints):
        """Save the marked state if a signal or an error ends what happens inside.

        RunError: a check of this project failed; the line says how the run goes on
        """
        try:
            yield
        except (Exception, CancelledError) as error:
            mine = not isinstance(error, OtherRankFailed)
            if mine:
                self.failed = one_line(error)
                self.now()  # the others ask it when their part of the batch is complete
            if checkpoints.save_marked() and mine and is_check(error):
                again = f"saved; go on with: {command('python main.py')} --resume {checkpoints.run}"
                raise RunError(f"{one_line(error)}; {again}") from error
            raise
        if self.asked:
            checkpoints.save_marked()

    @property
    def code(self) -> int:
        """The exit code: 128 + the signal that ended the run, or 0."""
        return 128 + self.asked if self.asked else 0
