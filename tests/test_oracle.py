"""The gradients of random minibatches against a naive oracle; `pytest tests/test_oracle.py --cases
200` draws more of them."""

from oracle import check
from real_runs import run

from ppo.model import decoder

CLOSE = 1e-4  # of the largest gradient: the project computes in float32


def test_gradients_are_those_of_the_oracle(oracle_seed, monkeypatch):
    # The oracle sets the size of chunks: other tests get theirs back.
    monkeypatch.setattr(decoder, "LOGITS_PER_CHUNK", decoder.LOGITS_PER_CHUNK)
    assert check(oracle_seed) < CLOSE


def test_gradients_of_two_ranks_are_those_of_the_oracle():
    ended = run(["tests/oracle.py", "0", "4"], ranks=2)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    assert "4 cases" in ended.stdout
