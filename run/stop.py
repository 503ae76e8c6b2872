"""How a run ends early: on a signal, or because one of its ranks failed.

On many ranks all end together. A rank that is signalled or fails reports it in the next gather, and
there the others learn it: while ranks listen, every gather carries such a report.
"""

import os
import signal
import sys
from asyncio import CancelledError
from contextlib import contextmanager, suppress

from common.errors import OtherRankFailed, RanksApart
from common.ranks import ALONE, Ranks
from common.signals import ENDING
from common.wrapper import Wrapper
from run.exit import one_line


class Stopped(Exception):
    """A signal ends the run. All ranks raise it at the same gather."""

    def __init__(self, number: signal.Signals):
        super().__init__(number.name)
        self.number = number


class Signals:
    """`with signals:` those of `common.signals` are noted in `received`.

    A second Ctrl-C ends the process at once.
    """

    def __init__(self):
        self.received: signal.Signals | None = None
        self.handlers = {}  # signal -> its handler before

    def __enter__(self) -> "Signals":
        for number in ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup's choice stays
                self.handlers[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame) -> None:
        # An exception raised here could end a gather between two of its messages: only note it.
        self.received = signal.Signals(number)
        if signal.SIGINT in self.handlers:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        line = f"{self.received.name}: the run is saved and ends; Ctrl-C ends it at once"
        try:
            os.write(2, f"\n{line}\n".encode())  # not print: the loop may be inside one
        except OSError:  # the terminal is gone, and a print would end the run before it is saved
            sys.stdout = sys.stderr = open(os.devnull, "w", errors="replace")


class StoppableRanks(Ranks):
    """The ranks of a run, which end together.

    signals: those that this rank received; listens: whether a gather raises Stopped if any rank
    received one, and OtherRankFailed if another rank failed
    in_step: whether all ranks compute one thing together, in which they would not hear of an error
    serve: called before each gather, where this rank waits: others may share its engine
    """

    def __init__(self, ranks: Ranks = ALONE, signals: Signals | None = None):
        self.ranks, self.signals = ranks, signals or Signals()
        self.rank, self.size = ranks.rank, ranks.size
        self.listens, self.failure, self.serve = False, "", serve_nobody
        self.in_step = False

    @property
    def device(self) -> str:
        return self.ranks.device

    def sum(self, tensor):
        return self.ranks.sum(tensor)

    def gather(self, items: list) -> list:
        self.serve()
        if not self.listens:
            return self.ranks.gather(items)
        # Only what was gathered counts: a signal may arrive while this rank waits for the others.
        reports = self.ranks.gather([(self.signals.received, self.failure, items)])
        failures = [f"rank {rank}: {report[1]}" for rank, report in enumerate(reports) if report[1]]
        if failures and not self.failure:
            raise OtherRankFailed(failures[0])
        for number, _, _ in reports:
            if number:
                raise Stopped(number)
        return [item for _, _, part in reports for item in part]

    def check(self) -> None:
        """Raise Stopped if this rank listens and received a signal."""
        if self.listens and self.signals.received:
            self.wait()  # the other ranks learn it where they gather next

    @contextmanager
    def together(self):
        """All ranks compute one thing in the block. An error that ends it is not reported."""
        self.in_step = self.size > 1
        yield
        self.in_step = False

    @contextmanager
    def listening(self):
        """Listen inside of the block. An error that ends the block is reported to the others.

        RanksApart: they do not hear it
        """
        self.listens = True
        try:
            yield
        except (Stopped, OtherRankFailed):
            raise
        except (Exception, CancelledError) as error:
            if self.in_step:
                raise RanksApart(one_line(error)) from error
            self.failure = one_line(error)
            try:
                with suppress(Stopped):
                    self.wait()
            except RanksApart:
                line, self.failure = self.failure, ""  # unreported
                raise RanksApart(line) from error
            raise
        finally:
            self.listens = False


def serve_nobody() -> None:
    """Stand for the work of a rank whose engine is its own."""


class StoppablePool(Wrapper):
    """A pool of environments whose `poll` raises Stopped once this rank received a signal.

    `with pool:` closes it at the end.
    """

    def __init__(self, envs, ranks: StoppableRanks):
        super().__init__(envs)
        self.ranks = ranks

    def poll(self, wait: bool = True) -> list:
        self.ranks.check()
        return self.inner.poll(wait=wait)

    def __enter__(self) -> "StoppablePool":
        return self

    def __exit__(self, *error) -> None:
        self.inner.close()
