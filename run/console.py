"""A run's output: lines, and progress bars on a terminal.

If the output is not a terminal, there are no bars, and lines are neither cut nor wrapped.
"""

import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import contextmanager

from tqdm import tqdm

from common.cli import command, discard_output, lost_output

BAR_DELAY = 1.0  # seconds after which a phase gets a bar of its own
COLUMN, WIDTH = 26, 78  # characters of a table's column and of the table


class Console:
    """Prints the lines of a run and draws its progress bars.

    total: number of updates of the run
    made: updates done before the run was resumed
    prints: whether this rank prints; only rank 0 does
    """

    def __init__(self, total: int, made: int, prints: bool):
        self.prints = prints
        self.draws = prints and sys.stderr.isatty()
        self.bar = tqdm(
            total=total,
            initial=made,
            unit="update",
            disable=not self.draws,
            leave=False,
            dynamic_ncols=True,
            mininterval=0,
            smoothing=0.1,
        )

    def say(self, line: str) -> None:
        """Print a line. If that is impossible, because the reader is gone or the disk full, end the
        run as if the terminal had hung up."""
        try:
            self.bar.write(wrapped(line), file=sys.stdout)
            sys.stdout.flush()
        except OSError as error:
            discard_output()
            if not isinstance(error, BrokenPipeError):
                print(f"{command('main.py')}: error: {lost_output(error)}", file=sys.stderr)
            signal.raise_signal(signal.SIGHUP)  # run.stop handles it: the run is saved

    def say_parts(self, parts: list[tuple[int, str]]) -> None:
        """Print (rank, text) parts as one line. Parts of high rank are left out if a terminal is
        too narrow."""
        kept = sorted(parts, key=lambda part: part[0])
        while sys.stdout.isatty() and len(joined(kept)) > columns():
            kept.pop()
        self.say(joined(part for part in parts if part in kept))

    def say_table(self, values: dict) -> None:
        """Print names and values in columns."""
        cells = [f"{name} {value}".ljust(COLUMN - 2) for name, value in values.items()]
        per_row = WIDTH // COLUMN
        for at in range(0, len(cells), per_row):
            self.say("  " + "  ".join(cells[at : at + per_row]).rstrip())

    def updated(self) -> None:
        """Advance the bar of the updates by one."""
        self.bar.update()

    def forget_time(self) -> None:
        """Leave the time since the last update out of the bar's estimate of the time left."""
        if self.draws:
            self.bar.unpause()

    @contextmanager
    def watching(self, what: str, progress: Callable[[], float] | None):
        """`with console.watching("evaluating", f):` a bar shows f(), which rises from 0 to 1.

        Without f it shows only the time. A thread draws the bar, so that it moves while the main
        thread waits for an engine or an environment.
        """
        if not self.draws:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._draw, args=(what, progress, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _draw(self, what: str, progress: Callable | None, over: threading.Event) -> None:
        if over.wait(BAR_DELAY):
            return
        form = "{desc} {percentage:3.0f}% |{bar}| {elapsed}<{remaining}"
        form = form if progress else "{desc} ... {elapsed}"
        with tqdm(
            desc=what, total=1.0, bar_format=form, leave=False, position=1, dynamic_ncols=True
        ) as bar:
            bar.start_t -= BAR_DELAY
            while not over.wait(0.5):
                bar.n = min(1.0, progress()) if progress else 0.0
                bar.refresh()


def columns() -> int:
    return shutil.get_terminal_size().columns


def joined(parts) -> str:
    return "  ".join(text for _, text in parts)


def wrapped(line: str) -> str:
    """Wrap a line at the terminal's width. Without a terminal, return it unchanged."""
    if not sys.stdout.isatty() or len(line) <= columns():
        return line
    return textwrap.fill(
        line,
        columns(),
        subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
