"""What a person sees while a run goes on: lines, and on a terminal also progress bars.

Where the output is no terminal there are lines alone, none of them cut or wrapped.
"""

import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import contextmanager

from tqdm import tqdm

from run.process import output_is_lost

PATIENCE = 1.0  # seconds that something takes before it gets a bar of its own
COLUMN, WIDTH = 26, 78  # of a table


class Console:
    """Prints the lines of a run and draws its bars, both only if this rank `speaks`.

    total, made: updates of the run, and those that were made before it was resumed
    """

    def __init__(self, total: int, made: int, speaks: bool):
        self.speaks = speaks
        self.draws = speaks and sys.stderr.isatty()
        self.bar = tqdm(
            total=total, initial=made, unit="update", disable=not self.draws, leave=False,
            dynamic_ncols=True, mininterval=0, smoothing=0.1,
        )  # fmt: skip

    def say(self, line: str) -> None:
        """Print a line. If nobody reads it any more, end the run as where the terminal is lost."""
        try:
            self.bar.write(wrapped(line), file=sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:
            if not output_is_lost():
                raise
            signal.raise_signal(signal.SIGHUP)  # run.stop listens: the run is saved

    def say_parts(self, parts: list[tuple[int, str]]) -> None:
        """Say a line of (rank, text) parts; where a terminal is narrow, high ranks are left out."""
        kept = sorted(parts, key=lambda part: part[0])
        while sys.stdout.isatty() and len(joined(kept)) > columns():
            kept.pop()
        self.say(joined(part for part in parts if part in kept))

    def say_table(self, values: dict) -> None:
        """Say names and values in columns."""
        cells = [f"{name} {value}".ljust(COLUMN - 2) for name, value in values.items()]
        per_row = WIDTH // COLUMN
        for at in range(0, len(cells), per_row):
            self.say("  " + "  ".join(cells[at : at + per_row]).rstrip())

    def updated(self) -> None:
        """Move the bar of the updates by one."""
        self.bar.update()

    def forget_time(self) -> None:
        """Leave the time since the last update out of what the bar says is left to come."""
        if self.draws:
            self.bar.unpause()

    @contextmanager
    def watching(self, what: str, progress: Callable[[], float] | None):
        """`with console.watching("evaluating", f):` a bar shows f(), which rises from 0 to 1.

        Without f it shows the time alone. A thread draws it, so that it moves while an engine or an
        environment is waited for.
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
        if over.wait(PATIENCE):
            return
        form = "{desc} {percentage:3.0f}% |{bar}| {elapsed}<{remaining}"
        form = form if progress else "{desc} ... {elapsed}"
        with tqdm(
            desc=what, total=1.0, bar_format=form, leave=False, position=1, dynamic_ncols=True
        ) as bar:
            bar.start_t -= PATIENCE
            while not over.wait(0.5):
                bar.n = min(1.0, progress()) if progress else 0.0
                bar.refresh()


def columns() -> int:
    return shutil.get_terminal_size().columns


def joined(parts) -> str:
    return "  ".join(text for _, text in parts)


def wrapped(line: str) -> str:
    """Return the line, or lines of the terminal's width if one shows it."""
    if not sys.stdout.isatty() or len(line) <= columns():
        return line
    options = dict(break_long_words=False, break_on_hyphens=False, replace_whitespace=False)
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, columns(), subsequent_indent=indent, **options)
