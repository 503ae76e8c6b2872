"""Signals: a run that is asked to end finishes its phase, saves, and says how to go on."""

import os
import signal

from storage.ranks import ALONE, Ranks


class Stop:
    """SIGTERM and SIGINT ask the loop to save and end (`asked`); a second SIGINT ends it."""

    def __init__(self, ranks: Ranks = ALONE):
        self.asked, self.ranks = None, ranks
        self.before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
        }

    def _ask(self, number: int, frame) -> None:
        self.asked = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        said = f"{self.asked.name}: this phase is finished, then all is saved; Ctrl-C exits at once"
        os.write(2, f"\n{said}\n".encode())  # the loop may be in the middle of a print

    def now(self) -> bool:
        """Whether a rank was asked; `asked` then is the signal on all of them."""
        asked = [signal for signal in self.ranks.gather([self.asked]) if signal]
        self.asked = asked[0] if asked else None
        return self.asked is not None

    def close(self) -> int:
        """Give the signals back; returns the exit code of a run that they ended or did not."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
        return 128 + self.asked if self.asked else 0
