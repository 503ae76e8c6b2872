"""Settings that do not go together with the number of ranks, or with the limit of open files."""

import resource
from types import SimpleNamespace

import pytest

from run.checks import check_open_files, check_shares


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"n_env": 3}, "--n-env 3 does not divide among 2 ranks"),
        ({"minibatch": 1}, "--minibatch 1 is less than a turn for each rank"),
        ({"group_size": 4}, "--group-size 4 does not divide the 2 environments of each of 2 ranks"),
        ({"group_size": 2}, None),
        ({"group_size": 4, "eval_only": True}, None),  # an evaluation has no groups
        ({"engine": "vllm:2"}, None),
        (
            {"engine": "vllm:4"},
            "--engine vllm:4: 4 ranks share an engine, and this run has 2; --engine vllm gives "
            "each rank its own",
        ),
    ],
)
def test_ranks_share_environments_groups_minibatches_and_engines_evenly(changes, line):
    settings = {"n_env": 4, "minibatch": 2, "group_size": 0, "eval_only": False, "engine": "auto"}
    args = SimpleNamespace(**settings | changes)
    if line is None:
        check_shares(args, size=2)
    else:
        with pytest.raises(ValueError, match=f"^{line}$"):
            check_shares(args, size=2)


@pytest.mark.parametrize(
    ("name", "workers", "limit", "needed"),
    [
        ("agent:my:solve", 0, 900, None),  # 100 + 5 x 160 = 900
        ("agent:my:solve", 0, 899, 900),
        ("agent:my:solve", 4, 324, None),  # 100 + 6 x 4 + 5 x 40 = 324
        ("agent:my:solve", 4, 323, 324),
        ("agent:my:solve", "threads:8", 899, 900),
        ("toy", 0, 100, None),
        ("toy", 32, 291, 292),  # 100 + 6 x 32
        ("agent:my:solve", 0, resource.RLIM_INFINITY, None),
    ],
)
def test_open_files_of_environments_fit_the_hard_limit(name, workers, limit, needed, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10, limit))
    args = SimpleNamespace(env_name=name, env_workers=workers, n_env=160, advantages="dual-gae")
    if needed is None:
        check_open_files(args)
    else:
        line = f"--n-env 160 needs some {needed} open files, and the limit is {limit}: raise it"
        with pytest.raises(ValueError, match=line):
            check_open_files(args)


def test_continuations_have_workers_of_their_own(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10, 387))
    # 100 and, for each of 32 workers, 3 in the training, 3 in an evaluation, 3 for continuations
    args = SimpleNamespace(env_name="toy", env_workers=32, n_env=160, advantages="vine:2")
    with pytest.raises(ValueError, match="needs some 388 open files, and the limit is 387"):
        check_open_files(args)
