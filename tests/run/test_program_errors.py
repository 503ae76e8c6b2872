"""The line about agent programs that failed in a batch."""

from types import SimpleNamespace

from run.program_errors import program_errors_line
from storage.collection import Turn


def step(text: str, failed: bool | None):
    """The last step of an episode, or one in mid-episode (None)."""
    metrics = {} if failed is None else {"program_errors": float(failed)}
    observation = SimpleNamespace(text=text)
    return SimpleNamespace(done=failed is not None, metrics=metrics, observation=observation)


def test_the_most_frequent_error_of_a_batch():
    ends = [("a.py:3: KeyError('x')", True), ("b.py:9: ValueError('y')", True), ("Ended.", False)]
    ends += [("a.py:3: KeyError('z')", True), ("under way", None)]
    played = {row: Turn(None, step(text, failed)) for row, (text, failed) in enumerate(ends)}
    assert program_errors_line(SimpleNamespace(played=played)) == (
        "3 of 4 programs that ended in this batch failed; 2 times: a.py:3: KeyError('x')"
    )
    whole = {0: Turn(None, step("Ended.", False))}
    assert program_errors_line(SimpleNamespace(played=whole)) == ""
