"""The method on one page learns, and stays on one page."""

from pathlib import Path

from examples.minimal import Settings, main

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "minimal.py"


def test_it_stays_on_one_page():
    assert len(MINIMAL.read_text().splitlines()) <= 250


def test_it_learns_to_go_to_objects(capsys):
    # The embedded model succeeds in about .82 of its episodes, so 8 updates that teach it nothing
    # would have to win at least 95 of the last 100 episodes by luck: p < 2e-4.
    success = main(Settings(seed=1, num_updates=8, w_epoch=8, minibatch=32))
    lines = capsys.readouterr().out.splitlines()
    assert success >= 0.95
    assert lines[0].startswith("critic warm-up on 2048 turns") and len(lines) == 9


def test_equal_seeds_make_equal_runs(capsys):
    printed = []
    for _ in range(2):
        main(Settings(num_updates=1, n_env=4, e_len=2, w_epoch=1, minibatch=4))
        printed.append([line.rsplit("  ", 1)[0] for line in capsys.readouterr().out.splitlines()])
    assert printed[0] == printed[1] and len(printed[0]) == 2
