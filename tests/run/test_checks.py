"""Settings that do not go together with the number of ranks."""

from types import SimpleNamespace

import pytest

from run.checks import check_shares


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"n_env": 3}, "--n-env 3 does not divide among 2 ranks"),
        ({"minibatch": 1}, "--minibatch 1 is less than a turn for each rank"),
        ({"group_size": 4}, "--group-size 4 does not divide the 2 environments of each of 2 ranks"),
        ({"group_size": 2}, None),
        ({"group_size": 4, "eval_only": True}, None),  # an evaluation has no groups
    ],
)
def test_ranks_share_environments_groups_and_minibatches_evenly(changes, line):
    settings = {"n_env": 4, "minibatch": 2, "group_size": 0, "eval_only": False}
    args = SimpleNamespace(**settings | changes)
    if line is None:
        check_shares(args, size=2)
    else:
        with pytest.raises(ValueError, match=f"^{line}$"):
            check_shares(args, size=2)
