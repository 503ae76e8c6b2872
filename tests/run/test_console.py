"""Lines, tables and bars: plain where nobody watches, no wider than the terminal where one does."""

import io
import time

import pytest

from run import console
from run.console import Console, wrapped

PARTS = [(0, "update 1/9"), (1, "success 0.50"), (3, "kl 0.001"), (2, "3.0 s")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def open_terminal(monkeypatch):
    """Open a terminal of 30 columns; returns its (output, errors)."""
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(console, "BAR_DELAY", 0.0)

    def open_it():  # in the test itself: pytest exchanges both streams before it
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(f"sys.{name}", Terminal())
        return console.sys.stdout, console.sys.stderr

    return open_it


def wait_for(text: str, errors: Terminal) -> None:
    end = time.monotonic() + 30
    while text not in errors.getvalue():
        assert time.monotonic() < end, errors.getvalue()
        time.sleep(0.05)


def test_without_a_terminal_lines_are_whole_and_there_are_no_bars(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    console = Console(9, 0, prints=True)
    console.say("word " * 20)
    console.say_parts(PARTS)
    with console.watching("evaluating", lambda: 0.5):
        console.updated()
    out, err = capsys.readouterr()
    assert out == "word " * 20 + "\nupdate 1/9  success 0.50  kl 0.001  3.0 s\n" and err == ""


def test_a_narrow_terminal_leaves_out_the_least_important_parts(open_terminal):
    out, _ = open_terminal()
    # all parts have 10 + 12 + 8 + 5 letters and 3 gaps of 2: 41; without kl 31; without 3.0 s 24
    Console(9, 0, prints=True).say_parts(PARTS)
    assert out.getvalue() == "update 1/9  success 0.50\n"


def test_a_narrow_terminal_wraps_other_lines(open_terminal):
    open_terminal()
    lines = wrapped(
        "  one two three four five six seven eight /a/long/path/that/stays/whole"
    ).split("\n")
    assert lines[0] == "  one two three four five six" and lines[1] == "    seven eight"
    assert lines[2] == "    /a/long/path/that/stays/whole"


def test_a_table_fits_into_80_columns(capsys):
    Console(9, 0, prints=True).say_table({f"name_{i}": "x" * 9 for i in range(4)})
    cell = "  name_{} xxxxxxxxx" + 8 * " "  # two spaces, then 24 letters
    row = (cell.format(0) + cell.format(1) + cell.format(2)).rstrip()
    assert capsys.readouterr().out == f"{row}\n  name_3 xxxxxxxxx\n"


def test_a_bar_moves_while_the_run_waits(open_terminal):
    _, errors = open_terminal()
    shares = iter([0.25, 0.5])
    console = Console(9, 0, prints=True)
    with console.watching("evaluating", lambda: next(shares, 1.0)):
        wait_for("100%", errors)
    drawn = errors.getvalue()
    assert 0 < drawn.index("evaluating  25%") < drawn.index("50%") < drawn.index("100%")
    with console.watching("scoring", None):
        wait_for("scoring ...", errors)


def test_the_remaining_time_leaves_out_the_start(open_terminal, monkeypatch):
    """100 s of start, then one of 9 updates in 10 s: 8 x 10 s are left."""
    _, errors = open_terminal()
    now = [1000.0]
    console = Console(9, 0, prints=True)
    monkeypatch.setattr(console.bar, "_time", lambda: now[0])
    console.bar.start_t = console.bar.last_print_t = now[0]
    now[0] += 100.0
    console.forget_time()
    now[0] += 10.0
    console.updated()
    assert "1/9 [00:10<01:20" in errors.getvalue().rpartition("\r")[2]


def test_silent_ranks_draw_nothing(open_terminal):
    _, errors = open_terminal()
    console = Console(9, 0, prints=False)
    with console.watching("evaluating", lambda: 0.5):
        console.updated()
        console.forget_time()
    assert errors.getvalue() == ""
