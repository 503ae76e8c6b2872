"""Signals: a run that is asked to end finishes its phase, saves, and says how it goes on."""

import os
import signal

from storage.ranks import ALONE, Ranks


class Stop:
    """SIGTERM and SIGINT ask the loop to save and to end (`asked`). A second SIGINT kills it."""

    def __init__(self, ranks: Ranks = ALONE):
        self.asked, self.ranks = None, ranks
        self.before = {
            number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)
        }

    def _ask(self, number: int, frame) -> None:
        self.asked = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        said = f"{self.asked.name}: this phase is finished, then all is saved; Ctrl-C exits at once"
        os.write(2, f"\n{said}\n".encode())  # os.write, for the loop may be inside a print

    def now(self) -> bool:
        """Whether any rank was asked to end; `asked` is then the same signal on all ranks."""
        asked = [signal for signal in self.ranks.gather([self.asked]) if signal]
        self.asked = asked[0] if asked else None
        return self.asked is not None

    def close(self) -> int:
        """Restore the handlers from before. Returns 128 + the signal that ended the run, or 0."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
        return 128 + self.asked if self.asked else 0
